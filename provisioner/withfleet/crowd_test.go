package provisioner_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
)

// A slowGrant is a store that keeps the first who asks for a grant waiting.
type slowGrant struct {
	provisioner.Store

	asked   atomic.Bool
	begun   chan struct{} // closed once it waits
	release chan struct{}
}

func (s *slowGrant) Grant(ctx context.Context, id wire.Identity) (*provisioner.Grant, provisioner.Revision, error) {
	if !s.asked.Swap(true) {
		close(s.begun)
		select {
		case <-s.release:
		case <-ctx.Done():
		}
	}
	return s.Store.Grant(ctx, id)
}

// TestWhoAsksForTheNameOfAnotherIsInNobodysWay has many with a token ask for the name of a machine
// that is on record, and say that they have what it was given, while the store is slow with one of
// them: the machine itself, which comes after them, finds a place to wait in.
func TestWhoAsksForTheNameOfAnotherIsInNobodysWay(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Edit: testbed.Quotas(0, 0)})
	s := &slowGrant{begun: make(chan struct{}), release: make(chan struct{})}
	p := f.Provisioner(func(store provisioner.Store) provisioner.Store { s.Store = store; return s })
	web1 := f.Node("web1.example.net")
	theirs, honest := provisioner.Source{Address: "192.0.2.66"}, provisioner.Source{Address: "192.0.2.1"}
	var enrolled *wire.Enrolled
	f.Eventually("web1 is enrolled", func() (ok bool) {
		var err error
		enrolled, err = p.Enroll(f.Context(), web1.Request(), honest)
		return err == nil
	})
	applied, err := web1.Confirm(enrolled)
	if err != nil {
		t.Fatal(err)
	}

	var g sync.WaitGroup
	take := func(want wire.Code) {
		if _, err := p.Enroll(f.Context(), f.Node("web1.example.net").Request(), theirs); provisioner.CodeOf(err) != want {
			t.Errorf("another key: %v, want %s", err, want)
		}
	}
	g.Go(func() { take(wire.CodeIdentityTaken) })
	<-s.begun
	var crowd sync.WaitGroup
	for range 20 {
		crowd.Go(func() { take(wire.CodeIdentityTaken) })
		crowd.Go(func() {
			forged := *applied
			forged.Serial = wire.NewID()
			if err := p.Applied(f.Context(), &forged, theirs); provisioner.CodeOf(err) != wire.CodeNotIssued {
				t.Errorf("a confirmation of what nobody has: %v, want %s", err, wire.CodeNotIssued)
			}
		})
	}
	crowd.Wait() // none of them waits for the first
	for range 4 {
		g.Go(func() {
			if _, err := p.Enroll(f.Context(), web1.Request(), honest); err != nil {
				t.Errorf("the machine itself: %v", err)
			}
		})
		g.Go(func() {
			if err := p.Applied(f.Context(), applied, honest); err != nil {
				t.Errorf("its confirmation: %v", err)
			}
		})
	}
	close(s.release)
	g.Wait()
	f.Check()
}
