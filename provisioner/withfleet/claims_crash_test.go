package provisioner_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"muster/provisioner/orders"

	"muster/provisioner/trust"

	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
)

// TestADeathAtEveryStep ends the process before and after every call to its store while a node enrolls with a
// one-time token. The node asks the next process, and only this node is enrolled.
func TestADeathAtEveryStep(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	f := testbed.New(t, testbed.Options{Edit: testbed.Quotas(0, 0)})
	grant := func(id wire.Identity) {
		if err := putGrant(f, &orders.Grant{
			ID:        wire.NewID(),
			Identity:  id,
			At:        f.Clock.Now(),
			ExpiresAt: f.Clock.Now().Add(time.Hour),
		}); err != nil {
			t.Fatal(err)
		}
	}
	scenes := map[string]struct {
		prepare func(identity string) // before the token is signed
		before  func(p *provisioner.Provisioner, n *simnode.Node)
		steps   int // calls in all
	}{
		"a new identity": {steps: 3}, // record, claim, record
		"an identity of another machine, by a grant": {
			prepare: func(identity string) { f.Enroll(f.Node(identity)) },
			before:  func(_ *provisioner.Provisioner, n *simnode.Node) { grant(wire.Identity(n.Identity)) },
			steps:   4, // and the loss of the name, before the reply
		},
		"after a death before the record": {
			before: func(_ *provisioner.Provisioner, n *simnode.Node) {
				dying(t, f, 2, false, n)
			},
			steps: 5, // one conflict: the new process has not read the log, and reads it
		},
	}
	i := 0
	// play ends the process and has the node ask the next one. It returns false if the machine was too slow and the
	// node refused too early.
	play := func(name string, step int, after bool) bool {
		i++
		scene, identity := scenes[name], fmt.Sprintf("web%d.example.net", i)
		if scene.prepare != nil {
			scene.prepare(identity)
		}
		token := f.Token(testbed.Limited(1))
		n := node(t, identity, token)
		life, over := context.WithCancel(t.Context())
		defer over()
		next := f.ProvisionerFor(life, nil)
		if scene.before != nil {
			scene.before(next, n)
		}
		calls, err := dying(t, f, step, after, n)
		if code := provisioner.CodeOf(err); calls <= step &&
			(code == wire.CodeRevocationsUnknown || code == wire.CodeStoreUnavailable) {
			return false
		}
		if died := step < scene.steps; died != (err != nil) {
			t.Errorf("%s: death at call %d of %d: %v", name, step, calls, err)
		}
		e, err := patiently(f, next, n, provisioner.Source{})
		if err != nil {
			t.Errorf("%s: after a death at call %d, after it %v: %v", name, step, after, err)
			return true
		}
		if r := f.Apply(n, e); r.Applied == nil {
			t.Errorf("%s: confirmation: %+v", name, r.Refusal)
		}
		late := node(t, "late-"+identity, token)
		if _, err := patiently(f, next, late, provisioner.Source{}); err == nil ||
			provisioner.CodeOf(err) != wire.CodeTokenUsedUp {
			t.Errorf("%s: another node: %v, want %s", name, err, wire.CodeTokenUsedUp)
		}
		return true
	}
	for name, scene := range scenes {
		for step := range scene.steps + 1 {
			for _, after := range []bool{false, true} {
				f.Eventually(fmt.Sprintf("%s: death at call %d", name, step),
					func() bool { return play(name, step, after) })
			}
		}
	}
	f.Check()
}

// TestALostRaceGivesTheUseBack loses a new identity to another key between claim and record.
func TestALostRaceGivesTheUseBack(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	token := f.Token(testbed.Limited(1))
	other := provisioners(t, f, 1)[0]
	f.Faults.RecordWrites.Before(func(ctx context.Context, _ *provisioner.Record) {
		if _, err := other.Enroll(ctx, f.Node("web1.example.net").Request(), provisioner.Source{}); err != nil {
			t.Errorf("the other provisioner refuses: %v", err)
		}
	})
	f.Faults.ClaimWrites.Inject(testbed.LostAnswer, testbed.LostAnswer) // of the claim and of the release
	if got := f.Refused(node(t, "web1.example.net", token)); got != wire.CodeIdentityTaken {
		t.Fatalf("refused as %s, want %s", got, wire.CodeIdentityTaken)
	}
	if log := entries(t, f, token); len(log) != 2 || len(log[1].Releases) != 1 || log[1].Releases[0].All ||
		log[1].Releases[0].Attempt != log[0].Claims[0].Attempt {
		t.Fatalf("log = %+v, want a claim and its release", log)
	}
	f.Enroll(node(t, "web2.example.net", token))
	f.Check()
}

// TestARaceOfOneKeyCostsOneUse: one node asks two provisioners, and the second writes first.
func TestARaceOfOneKeyCostsOneUse(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	token := f.Token(testbed.Limited(1))
	n := node(t, "web1.example.net", token)
	other := provisioners(t, f, 1)[0]
	won := make(chan *wire.Enrolled, 1)
	f.Faults.RecordWrites.Before(func(ctx context.Context, _ *provisioner.Record) {
		winner, err := other.Enroll(ctx, n.Request(), provisioner.Source{})
		if err != nil {
			t.Errorf("the other provisioner refuses: %v", err)
		}
		won <- winner
	})
	e := f.Enroll(n)
	select {
	case winner := <-won:
		if winner != nil && e.Serial != winner.Serial {
			t.Errorf("certificate %s, want the winner's, %s", e.Serial, winner.Serial)
		}
	default:
		t.Error("no process wrote a record before this one")
	}
	if r := report(t, f, token); r.Used != 1 || len(r.UsedBy) != 1 || r.UsedBy[0].State != trust.UseEnrolled {
		t.Errorf("report = %+v", r)
	}
	f.Check()
}

// TestAnUnknownRecordKeepsItsUse: a record is neither acknowledged nor found, and arrives later.
func TestAnUnknownRecordKeepsItsUse(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	token := f.Token(testbed.Limited(1))
	n := node(t, "web1.example.net", token)
	var late func()
	ctx, cancel := context.WithCancel(f.Context())
	defer cancel()
	p := f.Provisioner(func(s provisioner.Store) provisioner.Store {
		return &slow{Store: s, put: func(r *provisioner.Record, after trust.Revision) {
			late = func() {
				if _, err := s.Put(f.Context(), r, after); err != nil {
					t.Errorf("the late write: %v", err)
				}
			}
			cancel()
		}}
	})
	if _, err := p.Enroll(ctx, n.Request(), provisioner.Source{}); err == nil ||
		provisioner.CodeOf(err) != wire.CodeStoreUnavailable {
		t.Fatalf("enroll = %v, want %s", err, wire.CodeStoreUnavailable)
	}
	if r := report(t, f, token); r.Used != 1 || r.UsedBy[0].State != trust.UseClaimed {
		t.Errorf("report = %+v, want a claim", r)
	}
	late()
	f.Enroll(n)
	if got := f.Refused(node(t, "web2.example.net", token)); got != wire.CodeTokenUsedUp {
		t.Errorf("another node is refused as %s", got)
	}
	f.Check()
}

// slow is a store whose writes of records are delayed.
type slow struct {
	provisioner.Store
	put func(*provisioner.Record, trust.Revision)
}

func (s *slow) Put(_ context.Context, r *provisioner.Record, after trust.Revision) (trust.Revision, error) {
	s.put(r, after)
	return 0, testbed.ErrInjected
}

// TestASuspendedProcessDoesNotWriteOnAnOldClaim: an operator may have released the claim meanwhile.
func TestASuspendedProcessDoesNotWriteOnAnOldClaim(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	token := f.Token(testbed.Limited(1))
	n := node(t, "web1.example.net", token)
	f.Faults.ClaimWrites.Before(func(context.Context, *trust.ClaimEntry) { f.Clock.Advance(15 * time.Minute) })
	if got := f.Refused(n); got != wire.CodeUnavailable {
		t.Errorf("refused as %s, want %s", got, wire.CodeUnavailable)
	}
	if r := f.Record(n.Identity); r != nil {
		t.Errorf("record = %+v", r)
	}
	if got := report(t, f, token).Used; got != 0 {
		t.Errorf("%d uses are held: nothing was written, and nothing will be", got)
	}
	f.Enroll(n)
	f.Check()
}

// TestAStoreThatCannotBeReadSpendsNothing breaks the log of one token; other tokens stay good.
func TestAStoreThatCannotBeReadSpendsNothing(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	token := f.Token(testbed.Limited(2))
	conn, err := f.Daemon().Connect("stranger")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.RequestWithContext(f.Context(), "muster.claims."+string(f.TokenID(token)),
		[]byte(`{"schema":2,"claims":[]}`)); err != nil {
		t.Fatal(err)
	}
	if got := f.Refused(node(t, "web1.example.net", token)); got != wire.CodeStoreUnavailable {
		t.Errorf("refused as %s, want %s", got, wire.CodeStoreUnavailable)
	}
	if r := f.Record("web1.example.net"); r != nil {
		t.Errorf("record = %+v", r)
	}
	f.Enroll(node(t, "web2.example.net", f.Token(testbed.Limited(2))))
}
