package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/wire"
	"muster/provisioner/store"
)

// remade has the events lost, as with a disk, and their stream made anew.
func (s *site) remade(t *testing.T, st *store.Store) {
	t.Helper()
	if err := s.js.DeleteStream(s.ctx, "MUSTER_EVENTS"); err != nil {
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
	go func() { ended <- st.FollowSeen(ctx, func(id wire.Identity, _ time.Time) { seen <- id }) }()
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
	alive(web1, 500)
	s.remade(t, st)
	alive(web2, 1)
}
