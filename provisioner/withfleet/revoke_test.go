package provisioner_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/broker"
	"muster/provisioner/events"
	"muster/provisioner/operate"
	"muster/provisioner/trust"
)

// another returns another provisioner on the fleet's store, without connections.
func another(t *testing.T, f *testbed.Fleet, wrap func(provisioner.Store) provisioner.Store) *provisioner.Provisioner {
	t.Helper()
	p := f.Provisioner(wrap)
	return p
}

// TestARevokedNodeIsNotRetiredByItsOldRevision: the revocation is not on the record yet.
func TestARevokedNodeIsNotRetiredByItsOldRevision(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	inFleet(t, f, "web1.example.net")
	inFleet(t, f, "web2.example.net")
	p, ctx := f.Daemon().Operator(), f.Context()
	e := &trust.Revocation{
		Schema: trust.RevocationSchema,
		ID:     "elsewhere",
		Kind:   trust.RevokedNode,
		By:     "x",
		Node:   "web1.example.net",
	}
	seen := map[wire.Identity]trust.Revision{}
	for _, id := range []wire.Identity{"web1.example.net", "web2.example.net"} {
		_, at, err := f.Daemon().Store().Record(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		seen[id] = at
	}
	if _, err := f.Daemon().Store().Logs().Revocations.Put(ctx, e.LogKey(), e, 0); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[wire.Identity]error{"web1.example.net": provisioner.ErrChanged, "web2.example.net": nil} {
		if err := testbed.Orders(p).Nodes.Retire(ctx, id, operator,
			provisioner.Precondition{Revision: seen[id]}); !errors.Is(err, want) {
			t.Errorf("retire %s as it was shown: %v, want %v", id, err, want)
		}
	}
}

// tokenID returns the id of a token.
func tokenID(t *testing.T, f *testbed.Fleet, text string) jwt.TokenID {
	t.Helper()
	v, err := f.Daemon().Operator().Gate.AdmitToken(text, "")
	if err != nil {
		t.Fatal(err)
	}
	return v.ID
}

// codeAt returns the code of a provisioner's refusal, or "".
func codeAt(f *testbed.Fleet, p *provisioner.Provisioner, n *simnode.Node) wire.Code {
	_, err := p.Enroll(f.Context(), n.Request(), provisioner.Source{})
	return provisioner.CodeOf(err)
}

// inFleet returns a node that has confirmed its certificate.
func inFleet(t *testing.T, f *testbed.Fleet, name string) (*simnode.Node, *wire.Enrolled) {
	t.Helper()
	n := f.Node(name)
	e := f.Enroll(n)
	if r := f.Apply(n, e); r.Applied == nil {
		t.Fatalf("confirmation: %+v", r.Refusal)
	}
	return n, e
}

// TestARevokedTokenEnrollsNoNode: an unknown token, at once where it was revoked and soon elsewhere, also over an
// existing connection.
func TestARevokedTokenEnrollsNoNode(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	other := another(t, f, nil)
	before, beforeGot := inFleet(t, f, "before.example.net")
	n := f.Node(web1)
	n.Token = before.Token
	live := f.Dial(n.Token)
	id := tokenID(t, f, n.Token)
	if err := f.Daemon().Orders().Tokens.Revoke(f.Context(), id, testbed.Operator()); err != nil {
		t.Fatal(err)
	}
	r, err := simnode.Enroll(f.Context(), live, n.Request())
	if err != nil || r.Refusal == nil || r.Refusal.Code != wire.CodeTokenRevoked {
		t.Errorf("over a connection from before: %+v, %v", r, err)
	}
	if nc, err := simnode.Dial(f.URL(), n.Token); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("another connection: %v, %v", nc, err)
	}
	f.Eventually("the other provisioner knows", func() bool { return other.Revocations().Token(id) != nil })
	if code := codeAt(f, other, n); code != wire.CodeTokenRevoked {
		t.Errorf("at the other provisioner: %q", code)
	}
	if r := f.Record(web1); r != nil {
		t.Errorf("record = %+v", r)
	}
	// Nodes that enrolled with it stay, and other tokens are good.
	if err := f.Daemon().Admits(f.Context(), wire.Identity(before.Identity), beforeGot.Serial); err != nil {
		t.Errorf("the node from before: %v", err)
	}
	f.Enroll(f.Node("after.example.net"))
	if err := f.Daemon().Orders().Tokens.Revoke(f.Context(), id, testbed.Operator()); err != nil {
		t.Errorf("revoked once more: %v", err)
	}
	f.Stop()
	f.Start()
	if code := codeAt(f, f.Daemon().Operator(), n); code != wire.CodeTokenRevoked {
		t.Errorf("after a restart: %s", code)
	}
	if got := emitted(f, events.TokenRevoked); len(got) != 1 || got[0].Token != id ||
		got[0].By != testbed.Operator().By || got[0].Why != testbed.Operator().Why {
		t.Errorf("events %+v", got)
	}
	f.Check()
}

func emitted(f *testbed.Fleet, typ events.Type) (list []events.Event) {
	for _, e := range f.Events() {
		if e.Type == typ {
			list = append(list, e)
		}
	}
	return list
}

// during is a store with a call at its first read of a record: after the proof, before the write.
type during struct {
	provisioner.Store
	once func()
}

func (d *during) Record(ctx context.Context, id wire.Identity) (*provisioner.Record, trust.Revision, error) {
	r, after, err := d.Store.Record(ctx, id)
	if once := d.once; once != nil {
		d.once = nil
		once()
	}
	return r, after, err
}

func TestRevocationsDuringAnAttemptCount(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		revoke func(t *testing.T, f *testbed.Fleet, p *provisioner.Provisioner, n *simnode.Node)
		want   wire.Code
	}{
		"the token": {func(t *testing.T, f *testbed.Fleet, p *provisioner.Provisioner, n *simnode.Node) {
			if err := testbed.Orders(p).Tokens.Revoke(f.Context(), tokenID(t, f, n.Token),
				testbed.Operator()); err != nil {
				t.Error(err)
			}
		}, wire.CodeTokenRevoked},
		"the signer": {func(t *testing.T, f *testbed.Fleet, p *provisioner.Provisioner, _ *simnode.Node) {
			signers, err := testbed.Orders(p).Signers.List(f.Context())
			if err != nil || len(signers) != 1 {
				t.Fatalf("signers %v, %v", signers, err)
			}
			if left, err := testbed.Orders(p).Signers.Remove(f.Context(), signers[0].ID,
				testbed.Operator()); left != 0 || err != nil {
				t.Errorf("RemoveSigner = %d, %v", left, err)
			}
		}, wire.CodeTokenInvalid},
		"the key, under another name": {func(t *testing.T, f *testbed.Fleet, p *provisioner.Provisioner,
			n *simnode.Node) {
			thief := *n
			thief.Identity = "web2.example.net"
			var err error
			if thief.CSR, err = simnode.CSR(n.Key, thief.Identity); err != nil {
				t.Fatal(err)
			}
			f.Enroll(&thief)
			if err := testbed.Orders(p).Nodes.Revoke(f.Context(), "web2.example.net", testbed.Operator()); err != nil {
				t.Error(err)
			}
		}, wire.CodeIdentityRevoked},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := testbed.New(t, testbed.Options{})
			n := f.Node(web1)
			d := &during{}
			p := another(t, f, func(s provisioner.Store) provisioner.Store { d.Store = s; return d })
			d.once = func() { tt.revoke(t, f, p, n) }
			if code := codeAt(f, p, n); code != tt.want {
				t.Errorf("refused with %q, want %s", code, tt.want)
			}
			if r := f.Record(web1); r != nil {
				t.Errorf("record = %+v", r)
			}
			f.Check()
		})
	}
}

// TestARevokedNodeIsRefusedEverywhere revokes at another provisioner: the connection is dropped, and certificate, key
// and token are refused, also after a restart and by CRL.
func TestARevokedNodeIsRefusedEverywhere(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	other := another(t, f, nil)
	n, e := inFleet(t, f, web1)
	peer, peerGot := inFleet(t, f, "web2.example.net")
	live, err := n.DialFleet(f.URL(), e)
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	if err := testbed.Orders(other).Nodes.Revoke(f.Context(), web1, testbed.Operator()); err != nil {
		t.Fatal(err)
	}
	f.Eventually("the connection is dropped", live.IsClosed)
	f.Eventually("it is on the CRL", func() bool { return f.OnCRL(e.Serial) })
	for range 2 {
		if err := f.Daemon().Admits(f.Context(), web1, e.Serial); !deniedAs(err, wire.CodeIdentityRevoked) {
			t.Errorf("admitted again: %v", err)
		}
		if nc, err := n.DialFleet(f.URL(), e); err == nil {
			nc.Close()
			t.Error("it connects again")
		}
		if code := f.Refused(n); code != wire.CodeIdentityRevoked {
			t.Errorf("with its token: %q", code)
		}
		fresh := f.Node(web1) // another key of its own
		r := fresh.Request()
		vouch(t, n, r)
		if _, err := f.Daemon().Operator().Enroll(f.Context(), r,
			provisioner.Source{}); provisioner.CodeOf(err) != wire.CodeIdentityRevoked {
			t.Errorf("with another key that the old one vouches for: %v", err)
		}
		r = f.Node("new.example.net").Request() // another name
		vouch(t, n, r)
		thief := *n
		thief.Identity = "new.example.net"
		if thief.CSR, err = simnode.CSR(n.Key, thief.Identity); err != nil {
			t.Fatal(err)
		}
		if code := f.Refused(&thief); code != wire.CodeIdentityRevoked {
			t.Errorf("as another machine with the same key: %q", code)
		}
		a, err := n.Confirm(e)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Daemon().Operator().Applied(f.Context(),
			a, provisioner.Source{}); provisioner.CodeOf(err) != wire.CodeIdentityRevoked {
			t.Errorf("its confirmation: %v", err)
		}
		f.Stop()
		f.Start()
	}
	if r := f.Record(web1); r.State != provisioner.StateRevoked || r.Revoked == "" || r.Operator == nil ||
		*r.Operator != testbed.Operator() {
		t.Errorf("record = %+v", r)
	}
	if nc, err := peer.DialFleet(f.URL(), peerGot); err != nil {
		t.Errorf("another node: %v", err)
	} else {
		nc.Close()
	}
	if err := f.Daemon().Orders().Nodes.Revoke(f.Context(), web1, testbed.Operator()); err != nil {
		t.Errorf("revoked once more: %v", err)
	}
	if got := emitted(f, events.Revoked); len(got) != 1 || got[0].Node != web1 || got[0].By != testbed.Operator().By {
		t.Errorf("events %+v", got)
	}
	f.Check()
}

// TestARevokedAgentStaysOut has a real agent try everything.
func TestARevokedAgentStaysOut(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	a := f.Agent(web1, f.Token(nil))
	f.WaitProvisioned(a)
	serial := a.Serial()
	connected := func() bool {
		return strings.Count(f.Log(), "connected to the fleet") > strings.Count(f.Log(), "connection to the fleet lost")
	}
	f.Eventually("the agent is connected", connected)
	f.Revoke(web1)
	f.Eventually("the agent lost its connection", func() bool { return !connected() })
	f.Eventually("the agent was refused at the door", func() bool {
		for _, e := range f.Events() {
			if e.Code == wire.CodeIdentityRevoked && strings.Contains(e.Cause, serial) {
				return true
			}
		}
		return false
	})
	// Without its certificate the agent uses its token, with and without its key.
	for _, file := range []string{"certificate.pem", "private.pem"} {
		a.Stop()
		before := len(emitted(f, events.Refused))
		if err := os.Remove(filepath.Join(a.Dir, file)); err != nil {
			t.Fatal(err)
		}
		a.Start()
		f.Eventually("it is refused without "+file, func() bool {
			list := emitted(f, events.Refused)
			return len(list) > before && list[len(list)-1].Code == wire.CodeIdentityRevoked
		})
	}
	a.Stop()
	f.Check()

	// Retired, the name is free, for the same machine too.
	f.Retire(web1)
	a.Start()
	f.WaitProvisioned(a)
	if a.Serial() == serial || !f.OnCRL(serial) {
		t.Errorf("after retiring: certificate %s, the one before (%s) on the CRL: %v", a.Serial(), serial,
			f.OnCRL(serial))
	}
	f.Check()
}

// TestARetiredNodeIsFree: its connection is dropped and its certificate revoked; any key gets the name, and the entry
// does not hit it later.
func TestARetiredNodeIsFree(t *testing.T) {
	t.Parallel()
	for _, revoked := range []bool{false, true} {
		f := testbed.New(t, testbed.Options{})
		n, e := inFleet(t, f, web1)
		live, err := n.DialFleet(f.URL(), e)
		if err != nil {
			t.Fatal(err)
		}
		if revoked {
			f.Revoke(web1)
		}
		f.Retire(web1)
		f.Retire(web1) // repeating is harmless
		f.Eventually("the connection is dropped", live.IsClosed)
		f.Eventually("the certificate is on the CRL", func() bool { return f.OnCRL(e.Serial) })
		if err := f.Daemon().Admits(f.Context(), web1, e.Serial); !deniedAs(err, wire.CodeIdentityRevoked) {
			t.Errorf("the retired certificate is admitted: %v", err)
		}
		next, nextGot := inFleet(t, f, web1)
		if err := f.Daemon().Admits(f.Context(), web1, nextGot.Serial); err != nil {
			t.Errorf("the next owner: %v", err)
		}
		f.Stop()
		f.Start()
		if err := f.Daemon().Admits(f.Context(), web1, nextGot.Serial); err != nil ||
			f.Record(web1).State != provisioner.StateProvisioned {
			t.Errorf("the next owner after a restart: %v", err)
		}
		f.Check()
		// The machine before is a stranger now.
		if code := f.Refused(n); code != wire.CodeIdentityTaken {
			t.Errorf("the owner of before: %q", code)
		}
		f.Revoke(web1)
		f.Retire(web1)
		if err := f.Daemon().Admits(f.Context(), web1, nextGot.Serial); !deniedAs(err, wire.CodeIdentityRevoked) {
			t.Errorf("admitted after the second retirement: %v", err)
		}
		f.Enroll(next) // its own key is not revoked
		f.Check()
		if got := len(emitted(f, events.Retired)); got != 2 {
			t.Errorf("%d events of retirement, want 2", got)
		}
	}
}

func TestImpossibleOrdersAreRefused(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	p, ctx := f.Daemon().Operator(), f.Context()
	for _, name := range []string{"live", "revoked", "retired"} {
		inFleet(t, f, name+".example.net")
	}
	f.Revoke("revoked.example.net")
	f.Retire("retired.example.net")
	hash := strings.Repeat("0a", 32)
	grant := func(name, key string, ttl time.Duration, c trust.Cause) error {
		_, err := testbed.Orders(p).Nodes.Grant(ctx, wire.Identity(name), operate.GrantOrder{KeyHash: key, TTL: ttl}, c)
		return err
	}
	remove := func(id jwt.SignerID, c trust.Cause) error {
		_, err := testbed.Orders(p).Signers.Remove(ctx, id, c)
		return err
	}
	add := func(n trust.NewSigner, c trust.Cause) error {
		_, err := testbed.Orders(p).Signers.Add(ctx, n, c)
		return err
	}
	someone, noOperator := testbed.Operator(), trust.Cause{Why: "because"}
	long := trust.Cause{By: "x", Why: strings.Repeat("x", 201)}
	anything := errors.New("any error")
	for name, tt := range map[string]struct{ err, want error }{
		"revoke a stranger": {testbed.Orders(p).Nodes.Revoke(ctx, "never.example.net", someone),
			provisioner.ErrNoRecord},
		"revoke a retired one": {testbed.Orders(p).Nodes.Revoke(ctx, "retired.example.net", someone),
			trust.ErrState},
		"revoke by no operator": {testbed.Orders(p).Nodes.Revoke(ctx, "live.example.net", noOperator),
			anything},
		"revoke with an essay": {testbed.Orders(p).Nodes.Revoke(ctx, "live.example.net", long), anything},
		"revoke no token":      {testbed.Orders(p).Tokens.Revoke(ctx, "x", someone), anything},
		"revoke a token, capital": {testbed.Orders(p).Tokens.Revoke(ctx,
			jwt.TokenID(strings.ToUpper(hash[:32])), someone), anything},
		"revoke a token, by no operator": {testbed.Orders(p).Tokens.Revoke(ctx, jwt.TokenID(hash[:32]), noOperator),
			anything},
		"retire a stranger": {testbed.Orders(p).Nodes.Retire(ctx, "never.example.net", someone),
			provisioner.ErrNoRecord},
		"retire by no operator": {testbed.Orders(p).Nodes.Retire(ctx, "live.example.net", noOperator),
			anything},
		"grant a stranger":      {grant("never.example.net", "", 0, someone), provisioner.ErrNoRecord},
		"grant a revoked one":   {grant("revoked.example.net", "", 0, someone), trust.ErrState},
		"grant a retired one":   {grant("retired.example.net", "", 0, someone), trust.ErrState},
		"grant by no operator":  {grant("live.example.net", "", 0, noOperator), anything},
		"grant no key":          {grant("live.example.net", "x", 0, someone), anything},
		"grant for a moment":    {grant("live.example.net", "", time.Second, someone), anything},
		"grant for days":        {grant("live.example.net", "", 25*time.Hour, someone), anything},
		"grant a negative time": {grant("live.example.net", "", -time.Hour, someone), anything},
		"remove no signer":      {remove("x", someone), anything},
		"remove by no operator": {remove(jwt.SignerID(hash), noOperator), anything},
		"add no signer":         {add(trust.NewSigner{Name: "x"}, someone), jwt.ErrKey},
		"add without a name in the limits": {add(trust.NewSigner{Public: []byte(hash),
			Name: "x", Identities: []string{}}, someone), anything},
		"add without a site in them": {add(trust.NewSigner{Public: []byte(hash), Name: "x", Sites: []string{}},
			someone), anything},
		"add by no operator": {add(trust.NewSigner{Public: []byte(hash), Name: "x"}, noOperator), anything},
		"add without a name": {add(trust.NewSigner{Public: []byte(hash)}, someone), anything},
		"add with two lines": {add(trust.NewSigner{Public: []byte(hash), Name: "build\nsigner"}, someone),
			anything},
		"add for a bad site": {add(trust.NewSigner{Public: []byte(hash), Name: "x", Sites: []string{"a b"}},
			someone), anything},
		"add for bad names": {add(trust.NewSigner{Public: []byte(hash), Name: "x", Identities: []string{"a..*"}},
			someone), anything},
		"add under a taken name": {add(trust.NewSigner{Public: []byte(hash), Name: "signer"}, someone), trust.ErrState},
	} {
		if tt.err == nil || !errors.Is(tt.want, anything) && !errors.Is(tt.err, tt.want) {
			t.Errorf("%s: %v, want %v", name, tt.err, tt.want)
		}
	}
	if r := f.Record("live.example.net"); r.State != provisioner.StateProvisioned {
		t.Errorf("record = %+v", r)
	}
	f.Check()
}

// TestARepeatedGrantGrantsNothing repeats an order after the granted machine has come.
func TestARepeatedGrantGrantsNothing(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	inFleet(t, f, web1)
	p, order := f.Daemon().Operator(), operate.GrantOrder{ID: wire.NewID()}
	first, err := testbed.Orders(p).Nodes.Grant(f.Context(), web1, order, testbed.Operator())
	if err != nil {
		t.Fatal(err)
	}
	reinstalled, other := f.Node(web1), f.Node(web1)
	f.Apply(reinstalled, f.Enroll(reinstalled))
	if g, err := testbed.Orders(p).Nodes.Grant(f.Context(), web1, order, testbed.Operator()); err != nil ||
		g.ID != first.ID || !g.At.Equal(first.At) {
		t.Errorf("asked for again: %+v, %v; want %+v", g, err, first)
	}
	if code := f.Refused(other); code != wire.CodeIdentityTaken {
		t.Errorf("one more machine: %q", code)
	}
	if got := emitted(f, events.Granted); len(got) != 1 {
		t.Errorf("events %+v", got)
	}
	order.ID = strings.Repeat("x", 65)
	if _, err := testbed.Orders(p).Nodes.Grant(f.Context(), web1, order, testbed.Operator()); err == nil {
		t.Error("an id of any length is taken")
	}
}

func TestAGrantIsForOneKey(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	inFleet(t, f, web1)
	p := f.Daemon().Operator()
	right, wrong := f.Node(web1), f.Node(web1)
	g, err := testbed.Orders(p).Nodes.Grant(f.Context(), web1, operate.GrantOrder{KeyHash: keyHash(t, right)},
		testbed.Operator())
	if err != nil || !g.ExpiresAt.After(f.Clock.Now().Add(50*time.Minute)) ||
		g.ExpiresAt.After(f.Clock.Now().Add(time.Hour)) {
		t.Fatalf("grant %+v, %v, want an hour", g, err)
	}
	if code := f.Refused(wrong); code != wire.CodeIdentityTaken {
		t.Errorf("another key: %q", code)
	}
	f.Enroll(right)
	if code := f.Refused(wrong); code != wire.CodeIdentityTaken {
		t.Errorf("another key afterwards: %q", code)
	}
	if _, err := testbed.Orders(p).Nodes.Grant(f.Context(), web1, operate.GrantOrder{KeyHash: keyHash(t, wrong), TTL: time.Minute},
		testbed.Operator()); err != nil {
		t.Fatal(err)
	}
	f.Clock.Advance(2 * time.Minute)
	if code := f.Refused(wrong); code != wire.CodeIdentityTaken {
		t.Errorf("with a grant that is over: %q", code)
	}
	if got := emitted(f, events.Granted); len(got) != 2 || got[0].Node != web1 || got[0].By == "" {
		t.Errorf("events %+v", got)
	}
	f.Check()
}

// deniedAs reports whether the broker refuses a connection with this code.
func deniedAs(err error, code wire.Code) bool {
	d := (*broker.Denied)(nil)
	return errors.As(err, &d) && d.Code == code
}
