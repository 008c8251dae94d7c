package provisioner_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"muster/internal/daemon"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/operate"
	"muster/provisioner/orders"
	"muster/provisioner/trust"
)

func (f *puppetFleet) oneTime(name string) (string, *orders.Grant) {
	f.t.Helper()
	secret, g, err := f.Nodes.OneTime(f.Context(), wire.Identity(name), 0, operator)
	if err != nil || len(secret) != 43 {
		f.t.Fatalf("secret of %d characters, %v", len(secret), err)
	}
	return secret, g
}

// TestAOneTimeSecretGivesANameToOneKey, whatever the name's record but a revoked one.
func TestAOneTimeSecretGivesANameToOneKey(t *testing.T) {
	t.Parallel()
	shared := newPuppetFleet(t, testbed.Options{DefaultPolicy: true})
	owner := func(t *testing.T, f *puppetFleet, name string) *puppetAgent {
		secret, _ := f.oneTime(name)
		a := f.agent(name, secret)
		a.enrolled()
		a.confirm()
		return a
	}
	order := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, tt := range []struct {
		what    string
		prepare func(t *testing.T, f *puppetFleet, name string)
		want    wire.Code
	}{
		{what: "no record"},
		{what: "another key", prepare: func(t *testing.T, f *puppetFleet, name string) { owner(t, f, name) }},
		{what: "retired", prepare: func(t *testing.T, f *puppetFleet, name string) {
			owner(t, f, name)
			order(t, f.Nodes.Retire(f.Context(), wire.Identity(name), operator))
		}},
		{what: "kept", prepare: func(t *testing.T, f *puppetFleet, name string) {
			owner(t, f, name)
			order(t, f.Nodes.Clean(f.Context(), wire.Identity(name), operator))
		}},
		{what: "not confirmed", prepare: func(t *testing.T, f *puppetFleet, name string) {
			secret, _ := f.oneTime(name)
			f.agent(name, secret).enrolled()
		}},
	} {
		t.Run(tt.what, func(t *testing.T) {
			t.Parallel()
			f := *shared
			f.t = t
			name := fmt.Sprintf("web%d.example.net", i)
			if tt.prepare != nil {
				tt.prepare(t, &f, name)
			}
			before := f.Record(name)
			secret, g := f.oneTime(name)
			if r := f.agent("other-"+name, secret).refused(wire.CodeApprovalPending); r.Proven {
				t.Error("the secret of another name proves something")
			}
			if provisioner.StateOf(before) == provisioner.StateProvisioned {
				f.agent(name, secret[1:]+"A").refused(wire.CodeIdentityTaken)
				f.agent(name, "").refused(wire.CodeIdentityTaken)
			}
			a := f.agent(name, secret)
			e := a.enrolled()
			r := f.Record(name)
			if r.Grant != g.ID || r.Decision.Reason != provisioner.ReasonOneTimeToken || r.Token != "" || r.Awaiting ||
				!slices.Equal(r.Lineage, []string{a.csr.KeyHash}) || r.Next.Serial != e.Serial {
				t.Errorf("record = %+v, want the new key's alone by the secret", r)
			}
			if again := a.enrolled(); again.Serial != e.Serial {
				t.Errorf("the same key gets %s, want %s again", again.Serial, e.Serial)
			}
			f.agent(name, secret).refused(wire.CodeIdentityTaken)
			a.confirm()
			if again := a.enrolled(); again.Serial != e.Serial {
				t.Errorf("the same key gets %s, want %s again", again.Serial, e.Serial)
			}
			if before != nil {
				lost := f.p.Revocations().Lost(wire.Identity(name), before.Lineage[0]) != nil
				if owned := before.State != provisioner.StateRetired; lost != owned {
					t.Errorf("the former key lost the name to the new one: %v, want %v", lost, owned)
				}
			}
		})
	}
	t.Run("revoked", func(t *testing.T) {
		t.Parallel()
		f := *shared
		f.t = t
		a := owner(t, &f, "bad.example.net")
		secret, _ := f.oneTime(a.name)
		order(t, f.Nodes.Revoke(f.Context(), wire.Identity(a.name), operator))
		f.agent(a.name, secret).refused(wire.CodeIdentityRevoked)
		order(t, f.Nodes.Retire(f.Context(), wire.Identity(a.name), operator))
		f.agent(a.name, secret).refused(wire.CodeApprovalPending)
	})
	t.Run("spent", func(t *testing.T) {
		t.Parallel()
		f := *shared
		f.t = t
		a := owner(t, &f, "freed.example.net")
		order(t, f.Nodes.Retire(f.Context(), wire.Identity(a.name), operator))
		if r := f.agent(a.name, a.token).refused(wire.CodeApprovalPending); r.Proven {
			t.Error("the secret of the former owner proves something once the name is free")
		}
	})
	t.Run("after its end", func(t *testing.T) {
		t.Parallel()
		f := newPuppetFleet(t, testbed.Options{DefaultPolicy: true})
		secret, _ := f.oneTime("web1.example.net")
		f.Clock.Advance(operate.DefaultOneTimeTTL)
		if r := f.agent("web1.example.net", secret).refused(wire.CodeApprovalPending); r.Proven {
			t.Error("an expired secret proves something")
		}
		// It is for Puppet agents: another node's token is judged as a token.
		fresh, _ := f.oneTime("web1.example.net")
		n := f.Node("web1.example.net")
		n.Token = fresh
		if _, err := patiently(f.Fleet, f.p, n, provisioner.Source{}); provisioner.CodeOf(err) != wire.CodeTokenInvalid {
			t.Errorf("muster's own agent: %v", err)
		}
		n.Token = f.Token(nil)
		if _, err := patiently(f.Fleet, f.p, n, provisioner.Source{}); provisioner.CodeOf(err) != wire.CodeApprovalPending {
			t.Errorf("a token beside the secret: %v", err)
		}
	})
	t.Cleanup(shared.Check)
}

// TestAOneTimeSecretIsSpentOnce by twenty machines at once, through two provisioners.
func TestAOneTimeSecretIsSpentOnce(t *testing.T) {
	t.Parallel()
	f := newPuppetFleet(t, testbed.Options{})
	second := f.Provisioner(nil)
	secret, _ := f.oneTime("web1.example.net")
	f.Eventually("both provisioners know the grant", func() bool {
		g, _ := second.Config().Store.Logs().Grants.Get("web1_example_net")
		return g.Value != nil
	})
	var wait sync.WaitGroup
	var mu sync.Mutex
	got := map[wire.Code]int{}
	serials := map[string]bool{}
	for i := range 20 {
		a := f.agent("web1.example.net", secret)
		if i%2 == 1 {
			a.p = second
		}
		wait.Go(func() {
			e, err := a.ask()
			mu.Lock()
			defer mu.Unlock()
			if got[provisioner.CodeOf(err)]++; err == nil {
				serials[e.Serial] = true
			}
		})
	}
	wait.Wait()
	if got[""] != 1 || len(serials) != 1 || got[wire.CodeIdentityTaken]+got[wire.CodeBusy] != 19 {
		t.Errorf("answers = %v, want one certificate", got)
	}
	if n := f.Revisions("web1.example.net"); n != 1 {
		t.Errorf("%d revisions, want 1", n)
	}
	f.Check()
}

// TestASecretSurvivesADeathAtEveryStep: the agent asks the next process, and gets one certificate.
func TestASecretSurvivesADeathAtEveryStep(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	f := newPuppetFleet(t, testbed.Options{DefaultPolicy: true})
	for step := range 8 {
		for _, after := range []bool{false, true} {
			name := fmt.Sprintf("web%d-%v.example.net", step, after)
			first, _ := f.oneTime(name)
			owner := f.agent(name, first)
			owner.enrolled()
			owner.confirm()
			secret, g := f.oneTime(name)
			a := f.agent(name, secret)
			_, err := dyingIn(t, f.Fleet, step, after, func(ctx context.Context, p *provisioner.Provisioner) error {
				_, err := a.askOnce(ctx, p)
				return err
			})
			e := a.enrolled()
			if r := f.Record(name); r.Grant != g.ID || r.Next == nil || r.Next.Serial != e.Serial ||
				r.Next.KeyHash != a.csr.KeyHash {
				t.Errorf("%s (%v): record = %+v", name, err, r)
			}
			f.agent(name, secret).refused(wire.CodeIdentityTaken)
			owner.refused(wire.CodeIdentityTaken)
			if f.p.Revocations().Lost(wire.Identity(name), owner.csr.KeyHash) == nil {
				t.Errorf("%s (%v): the former key has not lost the name", name, err)
			}
		}
	}
	f.Check()
}

// TestAKeptNameIsNotFree for a token, the allow-list or the key before.
func TestAKeptNameIsNotFree(t *testing.T) {
	t.Parallel()
	f := newPuppetFleet(t, testbed.Options{})
	const name = "web1.example.net"
	secret, _ := f.oneTime(name)
	before := f.agent(name, secret)
	before.enrolled()
	before.confirm()
	if err := f.Nodes.Clean(f.Context(), name, operator); err != nil {
		t.Fatal(err)
	}
	if r := f.Record(name); r.State != provisioner.StateRetired || !r.Awaiting {
		t.Fatalf("record = %+v, want it retired and kept", r)
	}
	if _, err := f.AllowList.Add(f.Context(), operate.AllowOrder{Pattern: "web*.example.net", WithoutToken: true},
		operator); err != nil {
		t.Fatal(err)
	}
	before.refused(wire.CodeIdentityTaken)
	f.agent(name, "").refused(wire.CodeIdentityTaken)
	f.agent(name, f.Token(nil)).refused(wire.CodeIdentityTaken)
	f.agent(name, f.Token(testbed.Limited(1, name))).refused(wire.CodeIdentityTaken)
	n := f.Node(name)
	if _, err := patiently(f.Fleet, f.p, n, provisioner.Source{}); provisioner.CodeOf(err) != wire.CodeIdentityTaken {
		t.Errorf("muster's own agent: %v", err)
	}
	// An approval of one key.
	a := f.agent(name, "")
	a.refused(wire.CodeIdentityTaken)
	if _, err := f.Keys.Approve(f.Context(), operate.Named(name, a.csr.KeyHash), 0, operator); err != nil {
		t.Fatal(err)
	}
	f.agent(name, "").refused(wire.CodeIdentityTaken)
	a.enrolled()
	if r := f.Record(name); r.Awaiting || r.Approval == nil || r.Decision.Reason != provisioner.ReasonNew {
		t.Errorf("record = %+v, want an approved new node", r)
	}
	a.confirm()
	// A grant to one key.
	if err := f.Nodes.Clean(f.Context(), name, operator); err != nil {
		t.Fatal(err)
	}
	a.refused(wire.CodeIdentityTaken) // its approval is spent
	b := f.agent(name, "")
	if _, err := f.Nodes.Grant(f.Context(), name, operate.GrantOrder{KeyHash: b.csr.KeyHash}, operator); err != nil {
		t.Fatal(err)
	}
	a.refused(wire.CodeIdentityTaken)
	b.enrolled()
	if r := f.Record(name); r.Decision.Reason != provisioner.ReasonGrant || r.Awaiting {
		t.Errorf("record = %+v, want it by the grant", r)
	}
	b.confirm()
	// An operator frees it.
	for _, order := range []func() error{
		func() error { return f.Nodes.Clean(f.Context(), name, operator) },
		func() error { return f.Nodes.Retire(f.Context(), name, operator) },
	} {
		if err := order(); err != nil {
			t.Fatal(err)
		}
	}
	f.agent(name, "").enrolled()
	f.Check()
}

// A name that is kept for another site, or for none, is given to no key by an operator that is limited to the site at
// which the key waits.
func TestAKeptNameIsNotGivenByOtherSites(t *testing.T) {
	t.Parallel()
	f := newPuppetFleet(t, testbed.Options{Edit: func(c *daemon.Config) { c.Site = "fra1" }})
	const name = "web1.example.net"
	secret, _ := f.oneTime(name)
	before := f.agent(name, secret)
	before.enrolled()
	before.confirm()
	if err := f.Nodes.Clean(f.Context(), name, operator); err != nil {
		t.Fatal(err)
	}
	a := f.agent(name, "")
	a.refused(wire.CodeIdentityTaken)
	of := operate.Named(name, a.csr.KeyHash)
	of.Sites = trust.Sites{"fra1"}
	if _, err := f.Keys.Approve(f.Context(), of, 0, operator); !errors.Is(err, operate.ErrOtherSite) {
		t.Errorf("Approve = %v, want ErrOtherSite", err)
	}
	if err := f.Nodes.Retire(f.Context(), name, operator); err != nil { // free
		t.Fatal(err)
	}
	if _, err := f.Keys.Approve(f.Context(), of, 0, operator); errors.Is(err, operate.ErrOtherSite) {
		t.Errorf("Approve of a free name = %v", err)
	}
}

// TestASecretThatWasReplacedMeanwhileAdmitsNoNode replaces it between the decision and the record.
func TestASecretThatWasReplacedMeanwhileAdmitsNoNode(t *testing.T) {
	t.Parallel()
	store := &whenRead{name: "www.example.net"}
	f := newPuppetFleet(t, testbed.Options{Policy: `package muster.enroll

default allow := false

allow if input.node.reason == "one_time_token"

approval if not allow

certificate := {"dns_names": ["www.example.net"]}

configuration := {"a": "b"}
`}, func(s provisioner.Store) provisioner.Store { store.Store = s; return store })
	secret, _ := f.oneTime("web1.example.net")
	a := f.agent("web1.example.net", secret)
	var next string
	store.meanwhile = func() { next, _ = f.oneTime("web1.example.net") }
	a.refused(wire.CodeApprovalPending)
	if f.Record(a.name) != nil || next == "" {
		t.Fatalf("record = %+v after the secret was replaced by one of %d characters", f.Record(a.name), len(next))
	}
	a.token = next
	a.enrolled()
}

// whenRead is a store with one call after the record of a name was read, which may be a name of a certificate.
type whenRead struct {
	provisioner.Store
	name      wire.Identity
	meanwhile func()
}

func (s *whenRead) Record(ctx context.Context, id wire.Identity) (*provisioner.Record, trust.Revision, error) {
	r, at, err := s.Store.Record(ctx, id)
	if f := s.meanwhile; f != nil && id == s.name {
		s.meanwhile = nil
		f()
	}
	return r, at, err
}

// TestARetirementThatIsNotAppliedYetHitsNoNextOwner: the process that wrote it has died, and the running ones are slow.
func TestARetirementThatIsNotAppliedYetHitsNoNextOwner(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	f := newPuppetFleet(t, testbed.Options{DefaultPolicy: true}, func(s provisioner.Store) provisioner.Store {
		return &slowToRetire{Store: s, release: release}
	})
	const name = "web1.example.net"
	secret, _ := f.oneTime(name)
	before := f.agent(name, secret)
	before.enrolled()
	before.confirm()
	next, _ := f.oneTime(name)
	entry := provisioner.EntryAbout(trust.RetiredNode, f.Record(name), f.Clock.Now(), operator)
	entry.Awaiting = true
	_, at := f.p.Revocations().About(name)
	f.Faults.RecordWrites.Before(func(context.Context, *provisioner.Record) { <-release })
	if err := f.p.Revocations().Put(f.Context(), entry, at); err != nil {
		t.Fatal(err)
	}
	a := f.agent(name, next)
	e, err := steadily(f.Fleet, func() (*wire.Enrolled, error) {
		return a.askOnce(context.WithValue(f.Context(), foreground{}, ofANode), f.p)
	})
	close(release)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.p.Enforce(f.Context(), name); err != nil {
		t.Fatal(err)
	}
	if r := f.Record(name); r.State != provisioner.StateEnrolled || r.Next.Serial != e.Serial || r.Revoked != entry.ID {
		t.Errorf("record = %+v, want the next owner's", r)
	}
	f.Check()
}

// slowToRetire is a store in which only requests retire a node at once.
type slowToRetire struct {
	provisioner.Store
	release <-chan struct{}
}

func (s *slowToRetire) Put(ctx context.Context, r *provisioner.Record, after trust.Revision) (trust.Revision, error) {
	if r.State == provisioner.StateRetired && ctx.Value(foreground{}) == nil {
		<-s.release
	}
	return s.Store.Put(ctx, r, after)
}
