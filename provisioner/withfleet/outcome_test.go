package provisioner_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"muster/provisioner/broker"
	"muster/provisioner/trust"

	"muster/internal/daemon"
	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/events"
)

// TestALostAcknowledgementIsNoRepetition: our own write counts as made, and any other as another's.
func TestALostAcknowledgementIsNoRepetition(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n := f.Node("web1.example.net")
	f.Faults.RecordWrites.Inject(testbed.LostAnswer)
	e := f.Enroll(n)
	if got := f.Faults.RecordWrites.Writes(); got != 1 {
		t.Errorf("%d writes, want 1: reading is enough to know", got)
	}
	f.Faults.RecordWrites.Inject(testbed.LostAnswer)
	f.Apply(n, e)
	f.Enroll(n)
	f.Apply(n, e)
	want := map[events.Type][]bool{events.Enrolled: {false, true}, events.Provisioned: {false, true}}
	got := map[events.Type][]bool{}
	for _, e := range f.Events() {
		got[e.Type] = append(got[e.Type], e.Repeated)
	}
	for typ, repeated := range want {
		if !slices.Equal(got[typ], repeated) {
			t.Errorf("%s: repeated %v, want %v", typ, got[typ], repeated)
		}
	}
	f.Check()
}

// recorder is a store that loses writes and remembers them.
type recorder struct {
	provisioner.Store
	lose func() bool // asked before each write

	mu       sync.Mutex
	serials  []string // guarded by mu: of offers
	attempts []string // guarded by mu
}

func (r *recorder) Put(ctx context.Context, record *provisioner.Record, after trust.Revision) (trust.Revision, error) {
	r.mu.Lock()
	if record.Next != nil {
		r.serials, r.attempts = append(r.serials, record.Next.Serial), append(r.attempts, record.Attempt)
	}
	r.mu.Unlock()
	if r.lose() {
		return 0, testbed.ErrInjected
	}
	return r.Store.Put(ctx, record, after)
}

// TestALostWriteIsRepeatedUnchanged: with the certificate that was signed.
func TestALostWriteIsRepeatedUnchanged(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	left := 2
	r := &recorder{lose: func() bool { left--; return left >= 0 }}
	p := f.Provisioner(func(s provisioner.Store) provisioner.Store { r.Store = s; return r })
	n := f.Node("web1.example.net")
	e, err := p.Enroll(f.Context(), n.Request(), provisioner.Source{})
	if err != nil {
		t.Fatal(err)
	}
	same := []string{e.Serial, e.Serial, e.Serial}
	if !slices.Equal(r.serials, same) || r.attempts[0] != r.attempts[2] {
		t.Errorf("wrote certificates %v by attempts %v, want one three times", r.serials, r.attempts)
	}
	f.Check()
}

// TestAnUnknownOutcomeIsNoSuccess ends the context while a write is neither acknowledged nor found. The next try
// succeeds.
func TestAnUnknownOutcomeIsNoSuccess(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n := f.Node("web1.example.net")
	var giveUp atomic.Pointer[context.CancelFunc]
	p := f.Provisioner(func(s provisioner.Store) provisioner.Store {
		return &recorder{Store: s, lose: func() bool { (*giveUp.Load())(); return true }}
	})
	ctx, cancel := context.WithCancel(f.Context())
	defer cancel()
	giveUp.Store(&cancel)
	if e, err := p.Enroll(ctx, n.Request(), provisioner.Source{}); err == nil ||
		provisioner.CodeOf(err) != wire.CodeStoreUnavailable || e != nil {
		t.Errorf("enroll = %v, %v, want %s", e, err, wire.CodeStoreUnavailable)
	}
	e := f.Enroll(n)
	a, err := n.Confirm(e)
	if err != nil {
		t.Fatal(err)
	}
	again, cancel := context.WithCancel(f.Context())
	defer cancel()
	giveUp.Store(&cancel)
	if err := p.Applied(again, a, provisioner.Source{}); err == nil ||
		provisioner.CodeOf(err) != wire.CodeStoreUnavailable {
		t.Errorf("applied = %v, want %s", err, wire.CodeStoreUnavailable)
	}
	if r := f.Record(n.Identity); r.State != provisioner.StateEnrolled {
		t.Errorf("record = %+v", r)
	}
	f.Send(n, a)
	f.Check()
}

// TestAnotherWriteBetweenOursIsNotOverwritten: an operator revokes between decision and write of an enrollment and of
// a confirmation.
func TestAnotherWriteBetweenOursIsNotOverwritten(t *testing.T) {
	t.Parallel()
	revoke := func(f *testbed.Fleet, name string) {
		f.Faults.RecordWrites.Before(func(context.Context, *provisioner.Record) {
			f.PutRecord(name, func(r *provisioner.Record) { r.State = provisioner.StateRevoked })
		})
	}
	const name = "web1.example.net"
	t.Run("of another configuration", func(t *testing.T) {
		t.Parallel()
		f := testbed.New(t, testbed.Options{Template: "role = {{ .Facts.role }}\n"})
		n := f.Node(name)
		n.Facts = testbed.Facts(t, map[string]string{"role": "web"})
		f.Apply(n, f.Enroll(n))
		n.Facts = testbed.Facts(t, map[string]string{"role": "db"})
		revoke(f, name)
		if got := f.Refused(n); got != wire.CodeIdentityRevoked {
			t.Errorf("refused as %s, want %s", got, wire.CodeIdentityRevoked)
		}
		f.Check()
	})
	t.Run("of a confirmation", func(t *testing.T) {
		t.Parallel()
		f := testbed.New(t, testbed.Options{})
		n := f.Node(name)
		e := f.Enroll(n)
		revoke(f, name)
		if r := f.Apply(n, e); r.Refusal == nil || r.Refusal.Code != wire.CodeIdentityRevoked.SentAs() {
			t.Errorf("confirmation: %+v", r)
		}
		if r := f.Record(name); r.State != provisioner.StateRevoked {
			t.Errorf("record is %s", r.State)
		}
		f.Check()
	})
}

// TestARefusedRequestCostsNoQuota: only new identities that are admitted count.
func TestARefusedRequestCostsNoQuota(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Edit: testbed.Quotas(2, 0), Policy: `package muster.enroll

default allow := false

allow if input.facts.role == "web"
`})
	token := f.Token(nil)
	node := func(identity, role string) *simnode.Node {
		n, err := simnode.New(identity, token)
		if err != nil {
			t.Fatal(err)
		}
		n.Facts = testbed.Facts(t, map[string]string{"role": role})
		return n
	}
	for range 5 {
		if got := f.Refused(node("db1.example.net", "db")); got != wire.CodeDenied {
			t.Fatalf("refused as %s", got)
		}
	}
	first := node("web1.example.net", "web")
	f.Apply(first, f.Enroll(first))
	f.Clock.Advance(31 * 24 * time.Hour) // a later certificate of a known key, and a fresh token
	token = f.Token(nil)
	first.Token = token
	f.Apply(first, f.Enroll(first))
	for _, name := range []string{"web2.example.net", "web3.example.net"} {
		f.Enroll(node(name, "web"))
	}
	if got := f.Refused(node("web4.example.net", "web")); got != wire.CodeQuotaExceeded {
		t.Errorf("refused as %s, want %s", got, wire.CodeQuotaExceeded)
	}
	other := f.Node("web5.example.net") // a token of its own
	other.Facts = first.Facts
	f.Enroll(other)
	f.Check()
}

// TestTheRequestsOwnTokenDecides, not the token of the connection, and before anything else in the request.
func TestTheRequestsOwnTokenDecides(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Edit: func(c *daemon.Config) { c.Site = "ams1" }})
	nc := f.Dial(f.Token(nil))
	stranger := testbed.New(t, testbed.Options{})
	site := func(s jwt.Site) func(*jwt.Claims) {
		return func(c *jwt.Claims) {
			if err := c.SetLimits(jwt.Limits{Site: s}); err != nil {
				t.Error(err)
			}
		}
	}
	shift := func(from, to time.Duration) func(*jwt.Claims) {
		return func(c *jwt.Claims) {
			now := f.Clock.Now().UTC().Truncate(time.Second)
			c.IssuedAt, c.NotBefore, c.ExpiresAt = now.Add(from), now.Add(from), now.Add(to)
		}
	}
	tests := map[string]struct {
		token string
		want  wire.Code // "" is enrolled
	}{
		"of another signer": {stranger.Token(nil), wire.CodeTokenInvalid},
		"that is none":      {"not-a-token", wire.CodeTokenInvalid},
		"that has expired":  {f.Token(shift(-48*time.Hour, -24*time.Hour)), wire.CodeTokenExpired},
		"of tomorrow":       {f.Token(shift(24*time.Hour, 48*time.Hour)), wire.CodeTokenNotYetValid},
		"of another site":   {f.Token(site("fra1")), wire.CodeTokenSite},
		"of this site":      {f.Token(site("ams1")), ""},
		"of no site":        {f.Token(nil), ""},
	}
	for name, tt := range tests {
		n, err := simnode.New("web1.example.net", tt.token)
		if err != nil {
			t.Fatal(err)
		}
		if tt.want == "" {
			n.Identity = "web-" + strings.ReplaceAll(name, " ", "-") + ".example.net"
			if n.CSR, err = simnode.CSR(n.Key, n.Identity); err != nil {
				t.Fatal(err)
			}
		} else {
			n.CSR = []byte("not a certificate request")
		}
		r, err := simnode.Enroll(f.Context(), nc, n.Request())
		switch {
		case err != nil:
			t.Errorf("a token %s: %v", name, err)
		case tt.want == "" && r.Enrolled == nil:
			t.Errorf("a token %s: %+v", name, r.Refusal)
		case tt.want != "" && (r.Refusal == nil || r.Refusal.Code != tt.want):
			t.Errorf("a token %s: %+v, want %s", name, r, tt.want)
		}
	}
	// Events of unproven requests go to a stream of their own.
	for _, e := range f.Events() {
		want := events.Attempt
		switch e.Code {
		case "":
			continue
		case wire.CodeTokenSite:
			want = events.Refused
		}
		if e.Type != want {
			t.Errorf("the event of %s is %s, want %s", e.Code, e.Type, want)
		}
		if e.Code == wire.CodeTokenSite && e.Site != "fra1" {
			t.Errorf("the event of %s says that the token is of site %q", e.Code, e.Site)
		}
	}
	f.Check()
}

// TestConfirmationsOfRevokedOffers confirms an offer of an identity that was revoked or retired meanwhile.
func TestConfirmationsOfRevokedOffers(t *testing.T) {
	t.Parallel()
	for state, want := range map[provisioner.State]wire.Code{
		provisioner.StateRevoked: wire.CodeIdentityRevoked, provisioner.StateRetired: wire.CodeNotIssued,
	} {
		t.Run(string(state), func(t *testing.T) {
			t.Parallel()
			f := testbed.New(t, testbed.Options{})
			n := f.Node("web1.example.net")
			e := f.Enroll(n)
			f.PutRecord(n.Identity, func(r *provisioner.Record) { r.State = state })
			if r := f.Apply(n, e); r.Refusal == nil || r.Refusal.Code != want.SentAs() {
				t.Errorf("confirmation: %+v, want %s", r, want.SentAs())
			}
			if !slices.ContainsFunc(f.Events(),
				func(e events.Event) bool { return e.Code == want && e.Node == n.Identity }) {
				t.Errorf("no event says %s", want)
			}
			if r := f.Record(n.Identity); r.State != state {
				t.Errorf("the record is %s", r.State)
			}
			if err := f.Daemon().Admits(f.Context(), "web1.example.net", e.Serial); err == nil {
				t.Error("its certificate is admitted")
			}
			f.Check()
		})
	}
}

// TestOnlyLiveCertificatesAreAdmitted follows one node's certificates through offer, confirmation, replacement and
// expiry.
func TestOnlyLiveCertificatesAreAdmitted(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n := f.Node("web1.example.net")
	first := f.Enroll(n)
	admitted := func(when, serial string, want wire.Code) {
		t.Helper()
		err := f.Daemon().Admits(f.Context(), "web1.example.net", serial)
		var denied *broker.Denied
		if want == "" && err != nil || want != "" && (!errors.As(err, &denied) || denied.Code != want) {
			t.Errorf("%s: %v, want code %q", when, err, want)
		}
	}
	admitted("offered", first.Serial, "")
	admitted("a serial that was never issued", "1", wire.CodeNotIssued)
	f.Apply(n, first)
	admitted("confirmed", first.Serial, "")
	var denied *broker.Denied
	if err := f.Daemon().Admits(f.Context(), "web2.example.net", first.Serial); !errors.As(err, &denied) ||
		denied.Code != wire.CodeNotIssued {
		t.Errorf("as another identity: %v", err)
	}
	f.Clock.Advance(31 * 24 * time.Hour)
	admitted("expired", first.Serial, wire.CodeNotIssued)
	n.Token = f.Token(nil)
	second := f.Enroll(n)
	admitted("the later one, offered", second.Serial, "")
	f.Apply(n, second)
	admitted("the later one, confirmed", second.Serial, "")
	f.Clock.Advance(-31 * 24 * time.Hour)
	admitted("superseded, though it has not expired", first.Serial, wire.CodeNotIssued)
	f.PutRecord(n.Identity, func(r *provisioner.Record) { r.State = provisioner.StateRevoked })
	admitted("revoked", second.Serial, wire.CodeIdentityRevoked)
	f.Check()
}

// TestAChangedConfigurationIsOfferedOnce repeats changed facts before the confirmation: one write.
func TestAChangedConfigurationIsOfferedOnce(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Template: "role = {{ .Facts.role }}\n"})
	n := f.Node("web1.example.net")
	n.Facts = testbed.Facts(t, map[string]string{"role": "web"})
	first := f.Enroll(n)
	f.Apply(n, first)
	provisioned := f.Record(n.Identity)
	if provisioned.ProvisionedAt.IsZero() || provisioned.Attempt == "" {
		t.Errorf("record = %+v", provisioned)
	}
	n.Facts = testbed.Facts(t, map[string]string{"role": "db"})
	second := f.Enroll(n)
	for range 3 {
		if again := f.Enroll(n); again.Digest != second.Digest || again.Serial != first.Serial {
			t.Errorf("offered %s with %s, want %s with %s", again.Serial, again.Digest, first.Serial, second.Digest)
		}
	}
	if got := f.Revisions(n.Identity); got != 3 {
		t.Errorf("%d revisions, want 3", got)
	}
	// A late confirmation of the first offer is acknowledged and changes nothing.
	if r := f.Apply(n, first); r.Applied == nil {
		t.Errorf("confirmation of the first: %+v", r.Refusal)
	}
	if r := f.Record(n.Identity); r.Next == nil || r.Next.Digest != second.Digest {
		t.Errorf("record = %+v", r)
	}
	f.Apply(n, second)
	f.Check()
}

// TestThePolicyIsAskedEachTime changes the policy's input for an enrolled node.
func TestThePolicyIsAskedEachTime(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Policy: `package muster.enroll

default allow := false

allow if input.facts.role == "web"

deny contains reason if {
	input.facts.role == "db"
	reason := sprintf("%s by %s is hush-this-is-the-operators", [input.node.state, input.node.reason])
}
`})
	n := f.Node("web1.example.net")
	n.Facts = testbed.Facts(t, map[string]string{"role": "web"})
	f.Apply(n, f.Enroll(n))
	n.Facts = testbed.Facts(t, map[string]string{"role": "db"})
	reply := f.Ask(n)
	if reply.Refusal == nil || reply.Refusal.Code != wire.CodeDenied {
		t.Fatalf("reply = %+v", reply)
	}
	// The operator gets the cause; the node does not.
	if got := f.Cause(n.Identity); !strings.Contains(got, "provisioned by replay is hush") {
		t.Errorf("cause = %q", got)
	}
	if told := reply.Refusal.Message + reply.Refusal.Remedy; strings.Contains(told, "hush") ||
		strings.Contains(told, n.Identity) {
		t.Errorf("the node is told %q", told)
	}
	f.Check()
}
