package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/store"
)

// remade has the events of a stream lost, as with a disk, and the stream made anew.
func (s *site) remade(t *testing.T, st *store.Store, stream string) {
	t.Helper()
	if err := s.js.DeleteStream(s.ctx, stream); err != nil {
		t.Fatal(err)
	}
	if err := st.Reopen(s.ctx); err != nil {
		t.Fatal(err)
	}
}

// TestNodesAreSeenInAStreamThatWasMadeAnew follows when nodes were heard of beyond the end
// of the stream: nobody waits until it is as long again.
func TestNodesAreSeenInAStreamThatWasMadeAnew(t *testing.T) {
	t.Parallel()
	st, s := newStore(t)
	seen := make(chan wire.Identity, 1000)
	ctx, cancel := context.WithCancel(s.ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- st.FollowSeen(ctx, func(id wire.Identity, _ time.Time) { seen <- id }, func(time.Time) {})
	}()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	// alive has a node speak until it is seen.
	alive := func(id wire.Identity, n int) {
		for {
			for range n {
				if err := s.conn.PublishMsg(&nats.Msg{Subject: wire.EventSubject(id, "alive"), Data: []byte("{}")}); err != nil {
					t.Fatal(err)
				}
			}
			again := time.After(time.Second)
			for waits := true; waits; {
				select {
				case who := <-seen:
					if who == id {
						return
					}
				case <-again:
					waits = false
				case <-s.ctx.Done():
					t.Fatalf("%s is never seen", id)
				}
			}
		}
	}
	alive(web1, 150)
	s.remade(t, st, "MUSTER_ALIVE")
	alive(web2, 1)
}

// TestEventsOfALogThatWasLost has somebody follow events while they are lost, and go on
// behind the last one that they had: all that are new come, once.
func TestEventsOfALogThatWasLost(t *testing.T) {
	t.Parallel()
	st, s := newStore(t)
	write := func(id wire.Identity, n int) {
		for range n {
			st.Emit(provisioner.Event{Type: provisioner.EventEnrolled, Node: string(id), Time: time.Now()})
		}
	}
	read := func(ctx context.Context, q provisioner.EventQuery, n int) (last provisioner.Place, err error) {
		t.Helper()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		came := 0
		err = st.Events(ctx, q, func(e *provisioner.StoredEvent) error {
			last = e.Place
			if came++; came == n {
				cancel()
			}
			return nil
		})
		if came != n {
			t.Errorf("%d events came, want %d: %v", came, n, err)
		}
		return last, err
	}
	write(web1, 50)
	place, _ := read(s.ctx, provisioner.EventQuery{Since: time.Now().Add(-time.Hour)}, 50)

	ended := make(chan error, 1)
	began := make(chan bool, 1)
	go func() {
		ended <- st.Events(s.ctx, provisioner.EventQuery{After: &provisioner.Place{Events: place.Events - 1}}, func(*provisioner.StoredEvent) error {
			began <- true
			return nil
		})
	}()
	<-began
	s.remade(t, st, "MUSTER_EVENTS")
	write(web2, 10)
	if err := <-ended; err == nil || s.ctx.Err() != nil {
		t.Errorf("whoever follows a log that was lost is told %v", err)
	}

	next, _ := read(s.ctx, provisioner.EventQuery{After: &place}, 10)
	write(web2, 70)
	stream, err := s.js.Stream(s.ctx, "MUSTER_EVENTS")
	for tick := time.NewTicker(5 * time.Millisecond); err == nil && stream.CachedInfo().State.LastSeq < 80; <-tick.C {
		_, err = stream.Info(s.ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, _ = read(s.ctx, provisioner.EventQuery{After: &next}, 70)
}
