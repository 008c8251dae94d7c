package provisioner_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
)

// TestADeathAtEveryStep lets the process die before and after every call to its
// store while it enrolls a node with a one-time token. The node asks the next
// process: it is enrolled, and nobody else.
func TestADeathAtEveryStep(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	f := testbed.New(t, testbed.Options{Edit: testbed.Quotas(0, 0)})
	grant := func(id wire.Identity) {
		if err := f.Daemon().Store().PutGrant(f.Context(), &provisioner.Grant{ID: wire.NewID(), Identity: id, At: f.Clock.Now(), ExpiresAt: f.Clock.Now().Add(time.Hour)}, provisioner.AnyRevision); err != nil {
			t.Fatal(err)
		}
	}
	scenes := map[string]struct {
		prepare func(identity string) // before the token is signed
		before  func(p *provisioner.Provisioner, n *simnode.Node)
		steps   int // calls in all
	}{
		"a new identity": {steps: 3}, // record, claim, record
		"an identity of others, by a grant": {
			prepare: func(identity string) { f.Enroll(f.Node(identity)) },
			before:  func(_ *provisioner.Provisioner, n *simnode.Node) { grant(wire.Identity(n.Identity)) },
			steps:   5, // record, grant, claim, whether the grant stands, record
		},
		"after a death before the record": {
			before: func(_ *provisioner.Provisioner, n *simnode.Node) {
				dying(t, f, 2, false, n)
			},
			steps: 5, // one conflict: the new process has not read the log
		},
	}
	i := 0
	// play has the process die, and the node ask the next one. It returns false if the process was
	// not to die yet and refused the node all the same, as on a machine with much else to do.
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
		if code := provisioner.CodeOf(err); calls <= step && (code == wire.CodeRevocationsUnknown || code == wire.CodeStoreUnavailable) {
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
		if _, err := patiently(f, next, late, provisioner.Source{}); err == nil || provisioner.CodeOf(err) != wire.CodeTokenUsedUp {
			t.Errorf("%s: another node: %v, want %s", name, err, wire.CodeTokenUsedUp)
		}
		return true
	}
	for name, scene := range scenes {
		for step := range scene.steps + 1 {
			for _, after := range []bool{false, true} {
				f.Eventually(fmt.Sprintf("%s: death at call %d", name, step), func() bool { return play(name, step, after) })
			}
		}
	}
	f.Check()
}

// TestADeathWhileAUseIsGivenBack loses the identity to another key after the
// claim, and then dies before and after every further call. Whatever is left of
// the claim, an operator can release it, and another node enrolls.
func TestADeathWhileAUseIsGivenBack(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Edit: testbed.Quotas(0, 0)})
	// record, claim, record: conflict, record, record, grant, history, release
	const steps = 8
	other := provisioners(t, f, 1)[0]
	var tokens []string
	lose := func(step int, after bool, identity string) (slow error) {
		token := f.Token(testbed.Limited(1))
		tokens = append(tokens, token)
		n := node(t, identity, token)
		ctx, die := context.WithCancel(f.Context())
		defer die()
		m := &mortal{die: die, at: step, after: after}
		p := f.ProvisionerFor(ctx, func(s provisioner.Store) provisioner.Store {
			m.Store = s
			faults := &testbed.Faults{Store: m}
			faults.Before(func(ctx context.Context, _ *provisioner.Record) {
				if _, err := other.Enroll(f.Context(), f.Node(identity).Request(), provisioner.Source{}); err != nil {
					t.Errorf("the other node: %v", err)
				}
			})
			return faults
		})
		_, err := p.Enroll(context.WithValue(ctx, foreground{}, ofANode), n.Request(), provisioner.Source{})
		if err == nil {
			t.Errorf("death at call %d of %d: enrolled", step, m.calls)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		die()
		if m.slow != nil {
			return m.slow
		}
		if provisioner.CodeOf(err) == wire.CodeRevocationsUnknown { // of a machine with much else to do
			return err
		}
		if code := provisioner.CodeOf(err); step == steps && code != wire.CodeIdentityTaken {
			t.Errorf("without a death: refused as %s, want %s", code, wire.CodeIdentityTaken)
		}
		used := report(t, f, token).Used
		if want := step < steps-1 || step == steps-1 && !after; (used == 1) != want {
			t.Errorf("death at call %d, after it %v: %d uses are held", step, after, used)
		}
		return nil
	}
	for step := 2; step <= steps; step++ {
		for _, after := range []bool{false, true} {
			for try := 1; ; try++ {
				slow := lose(step, after, fmt.Sprintf("web%d-%v-%d.example.net", step, after, try))
				if slow == nil {
					break
				}
				if try == 10 {
					t.Fatalf("death at call %d: the store does not answer: %v", step, slow)
				}
			}
		}
	}
	f.Clock.Advance(provisioner.ReleaseAge + time.Minute)
	for i, token := range tokens {
		identity := report(t, f, token).UsedBy[0].Identity
		if report(t, f, token).Used == 1 {
			if _, err := other.ReleaseClaim(f.Context(), f.TokenID(token), string(identity), provisioner.Cause{By: "anna"}); err != nil {
				t.Errorf("release: %v", err)
			}
		}
		f.Enroll(node(t, fmt.Sprintf("db%d.example.net", i), token))
	}
	f.Check()
}

// TestALostRaceGivesTheUseBack loses a new identity to another key between claim
// and record: the use is free again at once.
func TestALostRaceGivesTheUseBack(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	token := f.Token(testbed.Limited(1))
	other := provisioners(t, f, 1)[0]
	f.Faults.Before(func(ctx context.Context, _ *provisioner.Record) {
		if _, err := other.Enroll(ctx, f.Node("web1.example.net").Request(), provisioner.Source{}); err != nil {
			t.Errorf("the other provisioner refuses: %v", err)
		}
	})
	f.Faults.InjectClaims(testbed.LostAnswer, testbed.LostAnswer) // the claim's, and the release's
	if got := f.Refused(node(t, "web1.example.net", token)); got != wire.CodeIdentityTaken {
		t.Fatalf("refused as %s, want %s", got, wire.CodeIdentityTaken)
	}
	if log := entries(t, f, token); len(log) != 2 || len(log[1].Releases) != 1 || log[1].Releases[0].All || log[1].Releases[0].Attempt != log[0].Claims[0].Attempt {
		t.Fatalf("log = %+v, want a claim and its release", log)
	}
	f.Enroll(node(t, "web2.example.net", token))
	f.Check()
}

// TestARaceOfOneKeyCostsOneUse has the same node ask two provisioners, the
// second of which writes the record first.
func TestARaceOfOneKeyCostsOneUse(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	token := f.Token(testbed.Limited(1))
	n := node(t, "web1.example.net", token)
	other := provisioners(t, f, 1)[0]
	won := make(chan *wire.Enrolled, 1)
	f.Faults.Before(func(ctx context.Context, _ *provisioner.Record) {
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
		t.Error("nobody wrote a record before this one")
	}
	if r := report(t, f, token); r.Used != 1 || len(r.UsedBy) != 1 || r.UsedBy[0].State != provisioner.UseEnrolled {
		t.Errorf("report = %+v", r)
	}
	f.Check()
}

// TestARefusedAttemptLeavesTheClaimOfAnother has one key ask two provisioners with
// other facts, so that the one whose record came second is denied: it gives back
// its own claim, and the certificate of the other keeps its use.
func TestARefusedAttemptLeavesTheClaimOfAnother(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Policy: `package muster.enroll

default allow := true

deny contains "not again" if { input.node.reason == "replay"; input.facts.role == "loser" }
`})
	token := f.Token(testbed.Limited(1))
	n := node(t, "web1.example.net", token)
	n.Facts = testbed.Facts(t, map[string]string{"role": "winner"})
	winner := n.Request()
	n.Facts = testbed.Facts(t, map[string]string{"role": "loser"})
	other := provisioners(t, f, 1)[0]
	f.Faults.Before(func(ctx context.Context, _ *provisioner.Record) {
		if _, err := other.Enroll(ctx, winner, provisioner.Source{}); err != nil {
			t.Errorf("the other provisioner refuses: %v", err)
		}
	})
	if got := f.Refused(n); got != wire.CodeDenied {
		t.Fatalf("refused as %s (%s)", got, f.Cause(n.Identity))
	}
	if log := entries(t, f, token); len(log) != 3 || len(log[2].Releases) != 1 || log[2].Releases[0].Attempt != log[0].Claims[0].Attempt {
		t.Errorf("%d entries, want two claims and the release of the first", len(log))
	}
	if got := f.Refused(node(t, "web2.example.net", token)); got != wire.CodeTokenUsedUp {
		t.Errorf("another node is refused as %s, want %s", got, wire.CodeTokenUsedUp)
	}
	f.Check()
}

// TestAClaimIsKeptFromRoundToRound lets somebody else write the record without
// taking the identity away: the second round goes on with the first one's claim.
func TestAClaimIsKeptFromRoundToRound(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	owner := f.Node("web1.example.net")
	f.Enroll(owner)
	f.PutRecord(owner.Identity, func(r *provisioner.Record) { r.State, r.Next = provisioner.StateRetired, nil })
	token := f.Token(testbed.Limited(1))
	f.Faults.Before(func(context.Context, *provisioner.Record) {
		f.PutRecord(owner.Identity, func(r *provisioner.Record) { r.Agent = "touched" })
	})
	f.Enroll(node(t, owner.Identity, token))
	if log := entries(t, f, token); len(log) != 1 || f.Faults.ClaimAppends() != 1 {
		t.Errorf("%d entries by %d appends, want one claim", len(log), f.Faults.ClaimAppends())
	}
}

// overwriting is a store on which an operator revokes what was written before
// the writer hears of it.
type overwriting struct {
	provisioner.Store
	revoke func()
	lags   bool // the history comes from a replica that has not got it yet
}

func (o *overwriting) Put(ctx context.Context, r *provisioner.Record, after provisioner.Revision) (provisioner.Revision, error) {
	if _, err := o.Store.Put(ctx, r, after); err != nil {
		return 0, err
	}
	o.revoke()
	return 0, testbed.ErrInjected
}

func (o *overwriting) History(ctx context.Context, id wire.Identity) ([]provisioner.Revised, bool, error) {
	h, complete, err := o.Store.History(ctx, id)
	if o.lags && err == nil {
		h = h[:len(h)-2]
	}
	return h, complete, err
}

// TestARecordThatWasWrittenOverHasCostItsUse loses the acknowledgement of a
// record that is then revoked: the node is refused and got nothing, and yet a
// certificate of its key is on record.
func TestARecordThatWasWrittenOverHasCostItsUse(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Edit: testbed.Quotas(0, 0)})
	for name, lags := range map[string]bool{"seen": false, "not-seen-yet": true} {
		token := f.Token(testbed.Limited(1))
		n := node(t, name+".example.net", token)
		f.Enroll(f.Node(n.Identity)) // there has been somebody before
		f.PutRecord(n.Identity, func(r *provisioner.Record) { r.State, r.Next = provisioner.StateRetired, nil })
		p := f.Provisioner(func(s provisioner.Store) provisioner.Store {
			return &overwriting{Store: s, lags: lags, revoke: func() {
				f.PutRecord(n.Identity, func(r *provisioner.Record) { r.State = provisioner.StateRevoked })
			}}
		})
		if _, err := p.Enroll(f.Context(), n.Request(), provisioner.Source{}); err == nil || provisioner.CodeOf(err) != wire.CodeIdentityRevoked {
			t.Fatalf("%s: enroll = %v, want %s", name, err, wire.CodeIdentityRevoked)
		}
		if r := report(t, f, token); r.Used != 1 || r.Left == nil || *r.Left != 0 {
			t.Errorf("%s: report = %+v, want the use spent", name, r)
		}
	}
	f.Check()
}

// TestAWriteUnderWayKeepsItsUseWhenReadsAreBehind has a record written over the newest
// revision, unacknowledged, while a member that is behind answers all reads: each
// further try is over the revision before, and loses. The first may yet be written.
func TestAWriteUnderWayKeepsItsUseWhenReadsAreBehind(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Edit: testbed.Quotas(0, 0)})
	owner := f.Node("web1.example.net")
	e := f.Enroll(owner)
	old, at, err := f.Daemon().Store().Record(f.Context(), "web1.example.net")
	if err != nil {
		t.Fatal(err)
	}
	f.Apply(owner, e)
	s := &lagging{old: old, at: at}
	p := f.Provisioner(func(in provisioner.Store) provisioner.Store { s.Store = in; return s })
	if _, err := p.GrantNode(f.Context(), "web1.example.net", provisioner.GrantOrder{}, provisioner.Cause{By: "op", Why: "a new machine"}); err != nil {
		t.Fatal(err)
	}
	token := f.Token(testbed.Limited(1))
	if _, err := p.Enroll(f.Context(), node(t, owner.Identity, token).Request(), provisioner.Source{}); provisioner.CodeOf(err) != wire.CodeBusy {
		t.Fatalf("without a record: %v, want %s", err, wire.CodeBusy)
	}
	if r := report(t, f, token); r.Used != 1 {
		t.Errorf("report = %+v, want the use spent", r)
	}
	if err := s.late(); err != nil {
		t.Fatalf("the write that was under way: %v", err)
	}
	if got := f.Refused(node(t, "web2.example.net", token)); got != wire.CodeTokenUsedUp {
		t.Errorf("another node is refused as %s, want %s", got, wire.CodeTokenUsedUp)
	}
	f.Check()
}

// lagging is a store whose first write stays under way, and whose reads of records
// come from a member that is behind from then on.
type lagging struct {
	provisioner.Store
	old  *provisioner.Record
	at   provisioner.Revision
	late func() error // makes the first write
}

func (s *lagging) Put(ctx context.Context, r *provisioner.Record, after provisioner.Revision) (provisioner.Revision, error) {
	if s.late != nil {
		return s.Store.Put(ctx, r, after)
	}
	s.late = func() error {
		_, err := s.Store.Put(context.WithoutCancel(ctx), r, after)
		return err
	}
	return 0, testbed.ErrInjected
}

func (s *lagging) Record(ctx context.Context, id wire.Identity) (*provisioner.Record, provisioner.Revision, error) {
	if s.late != nil {
		return s.old, s.at, nil
	}
	return s.Store.Record(ctx, id)
}

// TestAnUnknownRecordKeepsItsUse ends a request while its record is neither
// acknowledged nor found. The record comes later.
func TestAnUnknownRecordKeepsItsUse(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	token := f.Token(testbed.Limited(1))
	n := node(t, "web1.example.net", token)
	var late func()
	ctx, cancel := context.WithCancel(f.Context())
	defer cancel()
	p := f.Provisioner(func(s provisioner.Store) provisioner.Store {
		return &slow{Store: s, put: func(r *provisioner.Record, after provisioner.Revision) {
			late = func() {
				if _, err := s.Put(f.Context(), r, after); err != nil {
					t.Errorf("the late write: %v", err)
				}
			}
			cancel()
		}}
	})
	if _, err := p.Enroll(ctx, n.Request(), provisioner.Source{}); err == nil || provisioner.CodeOf(err) != wire.CodeStoreUnavailable {
		t.Fatalf("enroll = %v, want %s", err, wire.CodeStoreUnavailable)
	}
	if r := report(t, f, token); r.Used != 1 || r.UsedBy[0].State != provisioner.UseClaimed {
		t.Errorf("report = %+v, want a claim", r)
	}
	late()
	f.Enroll(n)
	if got := f.Refused(node(t, "web2.example.net", token)); got != wire.CodeTokenUsedUp {
		t.Errorf("another node is refused as %s", got)
	}
	f.Check()
}

// slow is a store whose records are on their way.
type slow struct {
	provisioner.Store
	put func(*provisioner.Record, provisioner.Revision)
}

func (s *slow) Put(_ context.Context, r *provisioner.Record, after provisioner.Revision) (provisioner.Revision, error) {
	s.put(r, after)
	return 0, testbed.ErrInjected
}

// TestASuspendedProcessDoesNotWriteOnAnOldClaim lets more time pass between claim
// and record than an attempt may take: by then an operator might have released
// the claim.
func TestASuspendedProcessDoesNotWriteOnAnOldClaim(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	token := f.Token(testbed.Limited(1))
	n := node(t, "web1.example.net", token)
	f.Faults.BeforeClaims(func(context.Context, *provisioner.ClaimEntry) { f.Clock.Advance(15 * time.Minute) })
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

// TestASuspendedProcessDoesNotWriteOnAClaimToCome is the same by a clock that was ahead
// and is set right meanwhile: it does not say how much time that took.
func TestASuspendedProcessDoesNotWriteOnAClaimToCome(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	token := f.Token(func(c *jwt.Claims) { testbed.Limited(1)(c); lasting(c) })
	n := node(t, "web1.example.net", token)
	f.Clock.Advance(jump)
	f.Faults.BeforeClaims(func(context.Context, *provisioner.ClaimEntry) { f.Clock.Advance(15*time.Minute - jump) })
	if got := f.Refused(n); got != wire.CodeUnavailable {
		t.Errorf("refused as %s, want %s", got, wire.CodeUnavailable)
	}
	if got := report(t, f, token).Used; got != 0 {
		t.Errorf("%d uses are held: nothing was written, and nothing will be", got)
	}
	f.Enroll(n)
	f.Check()
}

// TestAStoreThatCannotBeReadSpendsNothing breaks the log of one token: nobody
// gets a certificate from it, and other tokens work on.
func TestAStoreThatCannotBeReadSpendsNothing(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	token := f.Token(testbed.Limited(2))
	conn, err := f.Daemon().Connect("stranger")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.RequestWithContext(f.Context(), "muster.claims."+string(f.TokenID(token)), []byte(`{"schema":2,"claims":[]}`)); err != nil {
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
