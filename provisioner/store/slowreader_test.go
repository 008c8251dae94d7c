package store_test

import (
	"context"
	"testing"
	"time"

	"muster/provisioner/events"
	"muster/provisioner/store"
)

// TestSlowReaderMissesOnlyDeletedEvents reads the events of a node slowly while old ones are deleted.
func TestSlowReaderMissesOnlyDeletedEvents(t *testing.T) {
	t.Parallel()
	for _, once := range []bool{false, true} {
		s, _ := start(t, t.TempDir())
		// 256 KiB of attempts
		st, err := store.Open(s.ctx, store.Config{Conn: s.conn, CAFingerprint: ours, Capacity: 8 << 20})
		if err != nil {
			t.Fatal(err)
		}
		written := uint64(0)
		attempts := func(name string, n int) {
			for range n {
				st.Emit(events.Event{Type: events.Attempt, Node: name, Time: time.Now(), Cause: "signature"})
			}
			written += uint64(n)
			for tick := time.NewTicker(5 * time.Millisecond); ; <-tick.C {
				stream, err := s.js.Stream(s.ctx, "MUSTER_ATTEMPTS")
				if err != nil {
					t.Fatal(err)
				}
				if stream.CachedInfo().State.LastSeq >= written {
					break
				}
			}
		}
		attempts("slow.example.net", 400)
		ctx, cancel := context.WithTimeout(s.ctx, 15*time.Second)
		defer cancel()
		took, goOn, seen := make(chan bool, 1), make(chan bool), make(chan bool, 1)
		ended := make(chan error, 1)
		first := true
		go func() {
			ended <- st.Events(ctx,
				events.Query{Node: "slow.example.net", Since: time.Now().Add(-time.Hour),
					Once: once}, func(e *events.Stored) error {
					if first {
						first = false
						took <- true
						<-goOn // the reader has paused
					}
					if e.Type == events.Enrolled {
						seen <- true
					}
					return nil
				})
		}()
		<-took
		attempts("other.example.net", 1200) // the first ones must be deleted
		st.Emit(events.Event{Type: events.Enrolled, Node: "slow.example.net", Time: time.Now()})
		close(goOn)
		select {
		case <-seen:
		case err := <-ended:
			if err != nil || !once {
				t.Errorf("once %v: Events = %v", once, err)
			}
		}
	}
}

// TestCanceledReadersLeaveNoConsumers cancels many readers of events at once. Their consumers would fill the broker's
// limit for minutes.
func TestCanceledReadersLeaveNoConsumers(t *testing.T) {
	t.Parallel()
	st, s := newStore(t)
	for i := range 100 {
		ctx, cancel := context.WithTimeout(s.ctx, time.Duration(i%20)*200*time.Microsecond)
		_ = st.Events(ctx, events.Query{}, func(*events.Stored) error { return nil })
		cancel()
	}
	for _, name := range []string{"MUSTER_EVENTS", "MUSTER_ATTEMPTS", "MUSTER_LIFECYCLE", "MUSTER_ALIVE"} {
		left := -1
		for tick := time.NewTicker(50 * time.Millisecond); left != 0; <-tick.C {
			stream, err := s.js.Stream(s.ctx, name)
			if err != nil {
				t.Fatalf("%d consumers of %s are left: %v", left, name, err)
			}
			left = stream.CachedInfo().State.Consumers
		}
	}
}
