package provisioner_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"muster/provisioner/operate"

	"muster/provisioner/trust"

	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
)

func node(t testing.TB, identity, token string) *simnode.Node {
	t.Helper()
	n, err := simnode.New(identity, token)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// patiently enrolls a node, and again if the views are stale, as on a slow machine.
func patiently(f *testbed.Fleet, p *provisioner.Provisioner, n *simnode.Node,
	source provisioner.Source) (e *wire.Enrolled, err error) {
	for ctx := f.Context(); ; {
		if e, err = p.Enroll(ctx, n.Request(), source); provisioner.CodeOf(err) != wire.CodeRevocationsUnknown {
			return e, err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// entries returns the log of a token.
func entries(t testing.TB, f *testbed.Fleet, token string) []*trust.ClaimEntry {
	t.Helper()
	var log []*trust.ClaimEntry
	err := f.Daemon().Store().Claims(f.Context(), f.TokenID(token), 0,
		func(e *trust.ClaimEntry, _ trust.Revision) error {
			log = append(log, e)
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// report returns the operators' report of a token.
func report(t testing.TB, f *testbed.Fleet, token string) *operate.TokenReport {
	t.Helper()
	life, over := context.WithCancel(t.Context())
	defer over()
	p := f.ProvisionerFor(life, nil)
	r, err := testbed.Orders(p).Tokens.Get(f.Context(), f.TokenID(token), 100)
	if errors.Is(err, operate.ErrUnknownToken) {
		return &operate.TokenReport{}
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// provisioners returns n provisioners on one store, like separate processes.
func provisioners(t testing.TB, f *testbed.Fleet, n int) []*provisioner.Provisioner {
	t.Helper()
	var all []*provisioner.Provisioner
	for range n {
		p := f.Provisioner(nil)
		all = append(all, p)
	}
	return all
}

// TestSoManyKeysGetACertificate: more nodes than uses ask three provisioners, 64 at a time.
func TestSoManyKeysGetACertificate(t *testing.T) {
	t.Parallel()
	for _, uses := range []int{1, 100, 500} {
		t.Run(fmt.Sprint(uses), func(t *testing.T) {
			if uses > 100 && testing.Short() {
				t.Skip("500 nodes take some seconds")
			}
			t.Parallel()
			f := testbed.New(t, testbed.Options{Edit: testbed.Quotas(0, 0), Quiet: true})
			token := f.Token(testbed.Limited(uses))
			all := provisioners(t, f, 3)
			nodes := uses + max(63, uses/20)
			var enrolled, usedUp sync.Map
			next := make(chan int)
			var askers sync.WaitGroup
			for range 64 {
				askers.Go(func() {
					for i := range next {
						n := node(t, fmt.Sprintf("web%d.example.net", i), token)
						_, err := patiently(f, all[i%len(all)], n, provisioner.Source{Address: "192.0.2.1"})
						switch code := provisioner.CodeOf(err); {
						case err == nil:
							enrolled.Store(i, true)
						case code == wire.CodeTokenUsedUp:
							usedUp.Store(i, true)
						default:
							t.Errorf("web%d: %v", i, err)
						}
					}
				})
			}
			for i := range nodes {
				next <- i
			}
			close(next)
			askers.Wait()
			if got := length(&enrolled); got != uses {
				t.Errorf("%d nodes are enrolled, want %d", got, uses)
			}
			if got := length(&usedUp); got != nodes-uses {
				t.Errorf("%d nodes found the token used up, want %d", got, nodes-uses)
			}
			if got := len(entries(t, f, token)); uses >= 100 && got > uses {
				t.Errorf("%d entries for %d claims: nothing was combined", got, uses)
			}
			f.Check()
		})
	}
}

func length(m *sync.Map) (n int) {
	m.Range(func(any, any) bool { n++; return true })
	return n
}

// TestEnrollmentSurvivesFaultyWrites combines each fault of the claim with each of the record. The node is enrolled
// and spends one use.
func TestEnrollmentSurvivesFaultyWrites(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	faults := map[string][]testbed.Fault{
		"well": nil, "lost": {testbed.Lost}, "unanswered": {testbed.LostAnswer}, "late": {testbed.Late},
		"doubled":         {testbed.Doubled},
		"lost, then late": {testbed.Lost, testbed.Late}, "late, then doubled": {testbed.Late, testbed.Doubled},
		"late, late, late": {testbed.Late, testbed.Late, testbed.Late},
	}
	f := testbed.New(t, testbed.Options{Edit: testbed.Quotas(0, 0)})
	i := 0
	for claim, claimFaults := range faults {
		for record, recordFaults := range faults {
			i++
			token := f.Token(testbed.Limited(1))
			n, late := node(t, fmt.Sprintf("web%d.example.net", i), token),
				node(t, fmt.Sprintf("db%d.example.net", i), token)
			f.Faults.ClaimWrites.Inject(claimFaults...)
			f.Faults.RecordWrites.Inject(recordFaults...)
			f.Enroll(n)
			if got := f.Refused(late); got != wire.CodeTokenUsedUp {
				t.Errorf("claim %s, record %s: another node is refused as %s", claim, record, got)
			}
			f.Enroll(n)
			if log := entries(t, f, token); len(log) != 1 || len(log[0].Claims) != 1 {
				t.Errorf("claim %s, record %s: the log has %d entries, want one claim", claim, record, len(log))
			}
			if got := f.Revisions(n.Identity); got != 1 {
				t.Errorf("claim %s, record %s: %d revisions, want 1", claim, record, got)
			}
		}
	}
	f.Check()
}

// TestRefusedRequestsSpendNothing refuses one token in every way, and then enrolls with it.
func TestRefusedRequestsSpendNothing(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Edit: testbed.Quotas(0, 1), Policy: `package muster.enroll

default allow := false

allow if input.facts.role in {"web", "wildcard", "unwritable"}

defer if input.facts.role == "later"

approval if input.facts.role == "asked"

certificate := {"dns_names": ["*.example.net"]} if input.facts.role == "wildcard"

configuration := {"a": "b\nc = d"} if input.facts.role == "unwritable"
`})
	token := f.Token(testbed.Limited(1, "web*.example.net"))
	role := func(r string) func(*simnode.Node) {
		return func(n *simnode.Node) { n.Facts = testbed.Facts(t, map[string]string{"role": r}) }
	}
	tests := map[string]struct {
		identity string
		edit     func(*simnode.Node)
		want     wire.Code
	}{
		"forged":               {"", func(n *simnode.Node) { n.Token = forge(token) }, wire.CodeTokenInvalid},
		"malformed":            {"", func(n *simnode.Node) { n.Token = "eyJ.eyJ.eyJ" }, wire.CodeTokenInvalid},
		"for another identity": {"db1.example.net", role("web"), wire.CodeTokenIdentity},
		"an impossible name":   {"web1.example.net.", role("web"), wire.CodeIdentityInvalid},
		"a reserved name":      {"broker.fleet.test", role("web"), wire.CodeTokenIdentity},
		"a bad CSR":            {"", func(n *simnode.Node) { n.CSR = []byte("not pem") }, wire.CodeCSRInvalid},
		"another's CSR": {"", func(n *simnode.Node) { n.CSR = node(t, "web2.example.net", token).CSR },
			wire.CodeCSRIdentity},
		"denied":                                  {"", role("db"), wire.CodeDenied},
		"deferred":                                {"", role("later"), wire.CodeDeferred},
		"waiting for approval":                    {"", role("asked"), wire.CodeApprovalPending},
		"a configuration that cannot be":          {"", role("unwritable"), wire.CodeConfigurationFailed},
		"a certificate that cannot be":            {"", role("wildcard"), wire.CodeCertificateFailed},
		"an identity that belongs to another key": {"web9.example.net", role("web"), wire.CodeIdentityTaken},
	}
	owner := f.Node("web9.example.net")
	role("web")(owner)
	f.Enroll(owner) // and takes the quota of its address
	p := f.Provisioner(nil)
	ask := func(n *simnode.Node, address string) (*wire.Enrolled, error) {
		return patiently(f, p, n, provisioner.Source{Address: address})
	}
	for name, tt := range tests {
		if tt.identity == "" {
			tt.identity = "web1.example.net"
		}
		n := node(t, tt.identity, token)
		tt.edit(n)
		if _, err := ask(n, "192.0.2.1"); err == nil || provisioner.CodeOf(err) != tt.want {
			t.Errorf("%s: %v, want %s", name, err, tt.want)
		}
	}
	first := f.Node("web8.example.net")
	role("web")(first)
	if _, err := ask(first, "192.0.2.2"); err != nil {
		t.Fatal(err)
	}
	n := node(t, "web1.example.net", token)
	role("web")(n)
	if _, err := ask(n, "192.0.2.2"); err == nil || provisioner.CodeOf(err) != wire.CodeQuotaExceeded {
		t.Errorf("over its quota: %v", err)
	}
	if log := entries(t, f, token); len(log) > 0 {
		t.Errorf("refused requests have written %d entries", len(log))
	}
	// Retries spend nothing, before and after the confirmation.
	e, err := ask(n, "192.0.2.3")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := ask(n, "192.0.2.3"); err != nil {
			t.Errorf("a retry: %v", err)
		}
		f.Apply(n, e)
	}
	if log := entries(t, f, token); len(log) != 1 || len(log[0].Claims) != 1 {
		t.Errorf("the log has %d entries, want one claim", len(log))
	}
	// A used-up token costs no quota either.
	for range 3 {
		late := node(t, "web2.example.net", token)
		role("web")(late)
		if _, err := ask(late, "192.0.2.4"); err == nil || provisioner.CodeOf(err) != wire.CodeTokenUsedUp {
			t.Errorf("beyond the last use: %v", err)
		}
	}
	other := f.Node("web7.example.net")
	role("web")(other)
	if _, err := ask(other, "192.0.2.4"); err != nil {
		t.Errorf("another node from the same address: %v", err)
	}
	f.Check()
}

// TestOneKeySpendsAUsePerName asks with one key for several identities.
func TestOneKeySpendsAUsePerName(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	token := f.Token(testbed.Limited(2))
	n := node(t, "web1.example.net", token)
	codes := []wire.Code{}
	for i := range 4 {
		n.Identity = fmt.Sprintf("web%d.example.net", i)
		var err error
		if n.CSR, err = simnode.CSR(n.Key, n.Identity); err != nil {
			t.Fatal(err)
		}
		if r := f.Ask(n); r.Refusal != nil {
			codes = append(codes, r.Refusal.Code)
		}
	}
	if want := []wire.Code{wire.CodeTokenUsedUp, wire.CodeTokenUsedUp}; !slices.Equal(codes, want) {
		t.Errorf("refused as %v, want %v", codes, want)
	}
	f.Check()
}

// TestClaimsOfSeveralProcessesAreCounted: another provisioner takes the last use between count and write.
func TestClaimsOfSeveralProcessesAreCounted(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	token := f.Token(testbed.Limited(2))
	f.Enroll(node(t, "web1.example.net", token))
	other := provisioners(t, f, 1)[0]
	f.Faults.ClaimWrites.Before(func(ctx context.Context, _ *trust.ClaimEntry) {
		if _, err := other.Enroll(ctx, node(t, "web2.example.net", token).Request(), provisioner.Source{}); err != nil {
			t.Errorf("the other provisioner refuses: %v", err)
		}
	})
	if got := f.Refused(node(t, "web3.example.net", token)); got != wire.CodeTokenUsedUp {
		t.Errorf("refused as %s", got)
	}
	if got := f.Faults.ClaimWrites.Writes(); got != 2 {
		t.Errorf("%d appends by our provisioner, want 2: the second met a conflict", got)
	}
	f.Check()
}

func TestTokensOfOneIDAreCountedTogether(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	small := f.Token(func(c *jwt.Claims) { c.JTI = "a.*>"; testbed.Limited(1)(c) })
	large := f.Token(func(c *jwt.Claims) { c.JTI = "a.*>"; testbed.Limited(2)(c) })
	f.Enroll(node(t, "web1.example.net", large))
	if got := f.Refused(node(t, "web2.example.net", small)); got != wire.CodeTokenUsedUp {
		t.Errorf("the smaller token, whose use is taken, is refused as %s", got)
	}
	f.Enroll(node(t, "web3.example.net", large))
	if got := f.Refused(node(t, "web4.example.net", large)); got != wire.CodeTokenUsedUp {
		t.Errorf("the larger one is refused as %s", got)
	}
	f.Check()
}
