package provisioner_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
)

// byReason is a policy whose configuration says on what ground it was given.
const byReason = `package muster.enroll

allow := true

configuration := {"plugin.ground": input.node.reason}
`

// TestAConfirmationByTheWayIsToldByWhoWroteIt renews by a certificate that was never confirmed,
// with two provisioners at once: the one that writes first confirms it by the way. The other one
// finds the renewal on record and offers it with another configuration, and tells of no
// confirmation.
func TestAConfirmationByTheWayIsToldByWhoWroteIt(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Policy: byReason})
	n, first := provisioned(f, web1)
	second, e2 := f.Renew(n, first) // which it does not confirm
	f.Clock.Advance(offerPace)
	other := f.Provisioner(nil)
	third := f.Successor(second)
	request := must(second.Renewal(third))(t)
	f.Faults.Before(func(ctx context.Context, _ *provisioner.Record) {
		if _, err := other.Renew(ctx, request, provisioner.Source{Node: web1}); err != nil {
			t.Errorf("the other provisioner refuses: %v", err)
		}
	})
	e3, err := f.Daemon().Operator().Renew(f.Context(), request, provisioner.Source{Node: web1})
	if err != nil {
		t.Fatal(err)
	}
	if r := f.Record(web1); f.Revisions(web1) != 5 || r.Current.Serial != e2.Serial || r.Next.Serial != e3.Serial || r.Next.Digest != e3.Digest {
		t.Fatalf("%d revisions, the last of them %+v; want that both have written", f.Revisions(web1), r)
	}
	if told := confirmationsTold(f, e2.Serial); told != 1 {
		t.Errorf("the confirmation is told %d times, want once", told)
	}
	f.Check()
}

// confirmationsTold counts the events that say that a certificate was confirmed, but for those of
// repetitions.
func confirmationsTold(f *testbed.Fleet, serial string) int {
	told := 0
	for _, e := range f.Events() {
		if e.Type == provisioner.EventProvisioned && e.Serial == serial && !e.Repeated {
			told++
		}
	}
	return told
}

// TestAConfirmationByTheWayOfUnknownOutcomeIsTold renews by a certificate that was never
// confirmed. The store has not said whether it has that when the request is over: when the node
// asks again, all is on record.
func TestAConfirmationByTheWayOfUnknownOutcomeIsTold(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n, first := provisioned(f, web1)
	second, e2 := f.Renew(n, first)
	f.Clock.Advance(offerPace)
	third := f.Successor(second)
	giveUp(t, f, func(ctx context.Context) error {
		_, err := f.Daemon().Operator().Renew(ctx, must(second.Renewal(third))(t), provisioner.Source{Node: web1})
		return err
	})
	if r := f.AskRenew(second, e2, third); r.Refusal != nil {
		t.Errorf("asked again: %+v", r.Refusal)
	}
	if r := f.Record(web1); f.Revisions(web1) != 4 || r.Current.Serial != e2.Serial {
		t.Fatalf("%d revisions, the last of them %+v; want certificate %s confirmed by the first request", f.Revisions(web1), r, e2.Serial)
	}
	f.Eventually("it is told", func() bool { return confirmationsTold(f, e2.Serial) > 0 })
	f.Check()
	if told := confirmationsTold(f, e2.Serial); told != 1 {
		t.Errorf("the confirmation is told %d times, want once", told)
	}
}

// TestWhoIsSupersededWithoutWordOfItIsDropped has the store not say whether it has what supersedes a
// certificate, as a renewal that confirms another by the way does, or the confirmation of one. The node asks again, and is told
// what is on record; or it goes on to the next certificate. Either way the connection of the former one ends.
func TestWhoIsSupersededWithoutWordOfItIsDropped(t *testing.T) {
	t.Parallel()
	for name, asks := range map[string]func(*testing.T, *testbed.Fleet, *simnode.Node, *wire.Enrolled){
		"a renewal, asked for again": func(t *testing.T, f *testbed.Fleet, second *simnode.Node, e2 *wire.Enrolled) {
			third := f.Successor(second)
			giveUp(t, f, func(ctx context.Context) error {
				_, err := f.Daemon().Operator().Renew(ctx, must(second.Renewal(third))(t), provisioner.Source{Node: web1})
				return err
			})
			if r := f.AskRenew(second, e2, third); r.Refusal != nil {
				t.Errorf("asked again: %+v", r.Refusal)
			}
		},
		"a confirmation, never made again": func(t *testing.T, f *testbed.Fleet, second *simnode.Node, e2 *wire.Enrolled) {
			giveUp(t, f, func(ctx context.Context) error {
				return f.Daemon().Operator().Applied(ctx, must(second.Confirm(e2))(t), provisioner.Source{Node: web1})
			})
			f.Renew(second, e2)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := testbed.New(t, testbed.Options{})
			n, first := provisioned(f, web1)
			former := f.DialFleet(n, first)
			second, e2 := f.Renew(n, first)
			f.Clock.Advance(offerPace)
			asks(t, f, second, e2)
			f.Eventually("the former certificate's connection is dropped", former.IsClosed)
			f.Check()
		})
	}
}

// giveUp has a request be over before the store has its record, which comes to be there before
// the next one, and expects that nobody knows what came of it.
func giveUp(t *testing.T, f *testbed.Fleet, request func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(f.Context())
	defer cancel()
	f.Faults.Before(func(context.Context, *provisioner.Record) { cancel() })
	f.Faults.Inject(testbed.Late)
	if err := request(ctx); provisioner.CodeOf(err) != wire.CodeStoreUnavailable {
		t.Fatalf("request = %v, want %s", err, wire.CodeStoreUnavailable)
	}
}

// TestAConfirmationByTheWayThatIsNotSeenIsTold is the same at a member of a cluster that is
// behind: the attempt begins again, and finds what it has written.
func TestAConfirmationByTheWayThatIsNotSeenIsTold(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n, first := provisioned(f, web1)
	second, e2 := f.Renew(n, first)
	f.Clock.Advance(offerPace)
	f.Faults.Behind(2)
	if _, err := f.Daemon().Operator().Renew(f.Context(), must(second.Renewal(f.Successor(second)))(t), provisioner.Source{Node: web1}); err != nil {
		t.Fatal(err)
	}
	if r := f.Record(web1); r.Current.Serial != e2.Serial || r.Next == nil {
		t.Fatalf("record = %+v, want certificate %s confirmed by the renewal", r, e2.Serial)
	}
	if told := confirmationsTold(f, e2.Serial); told != 1 {
		t.Errorf("the confirmation is told %d times, want once", told)
	}
	f.Check()
}

// TestAConfirmationOfUnknownOutcomeIsTold has the store not say whether it has a confirmation, and
// the node go on to the next certificate: it never confirms the one before again.
func TestAConfirmationOfUnknownOutcomeIsTold(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n, first := provisioned(f, web1)
	second, e2 := f.Renew(n, first)
	f.Clock.Advance(offerPace)
	confirmation := must(second.Confirm(e2))(t)
	giveUp(t, f, func(ctx context.Context) error {
		return f.Daemon().Operator().Applied(ctx, confirmation, provisioner.Source{Node: web1})
	})
	if _, e3 := f.Renew(second, e2); f.Record(web1).Next.Serial != e3.Serial {
		t.Fatalf("record = %+v, want the next certificate offered", f.Record(web1))
	}
	f.Eventually("it is told", func() bool { return confirmationsTold(f, e2.Serial) > 0 })
	f.Check()
	if told := confirmationsTold(f, e2.Serial); told != 1 {
		t.Errorf("the confirmation is told %d times, want once", told)
	}
}

// TestARefusalSaysWhatItsRoundFound has a node revoked between a round and its write: it is
// refused for that, on no ground that it had before and by no policy.
func TestARefusalSaysWhatItsRoundFound(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n, _ := provisioned(f, web1)
	other := f.Provisioner(nil)
	request := must(n.Renewal(f.Successor(n)))(t)
	f.Faults.Before(func(ctx context.Context, _ *provisioner.Record) {
		if err := other.RevokeNode(ctx, web1, operator); err != nil {
			t.Errorf("revoke: %v", err)
		}
	})
	var r *provisioner.Refusal
	if _, err := f.Daemon().Operator().Renew(f.Context(), request, provisioner.Source{Node: web1}); !errors.As(err, &r) || r.Code != wire.CodeIdentityRevoked {
		t.Fatalf("renewal = %v, want it refused as %s", err, wire.CodeIdentityRevoked)
	}
	for _, e := range f.Events() {
		if e.Code == wire.CodeIdentityRevoked && (e.Reason != "" || e.Policy != "") {
			t.Errorf("refused on ground %q by policy %q: %+v", e.Reason, e.Policy, e)
		}
	}
	f.Check()
}

// countedReads is a store in which no record has room, and which counts who reads one and how often
// it is looked for revocations.
type countedReads struct {
	fullOfRecords
	reads, looks *atomic.Int64
}

func (s countedReads) Record(ctx context.Context, id wire.Identity) (*provisioner.Record, provisioner.Revision, error) {
	s.reads.Add(1)
	return s.fullOfRecords.Record(ctx, id)
}

func (s countedReads) NextRevocation(ctx context.Context, after provisioner.Sequence) (*provisioner.Revocation, provisioner.Sequence, error) {
	s.looks.Add(1)
	return s.fullOfRecords.NextRevocation(ctx, after)
}

// TestAConfirmationWithoutRoomIsNotRemembered has a node confirm to a store that has no room, which it
// says: nothing is in doubt then, and nothing is remembered of each try, and looked for, until there is room.
func TestAConfirmationWithoutRoomIsNotRemembered(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n := f.Node(web1)
	e := f.Enroll(n)
	var reads, looks atomic.Int64
	full := f.Provisioner(func(s provisioner.Store) provisioner.Store { return countedReads{fullOfRecords{s}, &reads, &looks} })
	for range 3 {
		if err := full.Applied(f.Context(), must(n.Confirm(e))(t), provisioner.Source{}); !errors.Is(err, provisioner.ErrStoreFull) {
			t.Fatalf("confirmed: %v, want %v", err, provisioner.ErrStoreFull)
		}
	}
	before, from := reads.Load(), looks.Load()
	f.Eventually("it has looked for what others did", func() bool { return looks.Load() > from+10 }) // as often as for what it remembers
	if n := reads.Load() - before; n > 0 {
		t.Errorf("records were read %d times for confirmations that had no room", n)
	}
	f.Apply(n, e)
	f.Check()
}
