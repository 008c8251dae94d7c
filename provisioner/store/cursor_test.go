package store_test

import (
	"testing"
	"time"

	"muster/internal/wire"
	"muster/provisioner/events"
)

// remade deletes the events of a stream, as a lost disk does, and another provisioner makes the stream anew.
func (s *site) remade(t *testing.T, stream string) {
	t.Helper()
	if err := s.js.DeleteStream(s.ctx, stream); err != nil {
		t.Fatal(err)
	}
	s.open(t, ours)
}

// TestCursorBehindALostLogGetsAllNewEvents continues behind the last event of a lost log: all events of the new log
// come, once.
func TestCursorBehindALostLogGetsAllNewEvents(t *testing.T) {
	t.Parallel()
	st, s := newStore(t)
	write := func(id wire.Identity, n int) {
		for range n {
			st.Emit(events.Event{Type: events.Enrolled, Node: string(id), Time: time.Now()})
		}
	}
	// written waits until the log has that many events.
	written := func(n uint64) {
		t.Helper()
		for tick := time.NewTicker(5 * time.Millisecond); ; <-tick.C {
			stream, err := s.js.Stream(s.ctx, "MUSTER_EVENTS")
			if err != nil {
				t.Fatal(err)
			}
			if stream.CachedInfo().State.Msgs == n {
				return
			}
		}
	}
	read := func(q events.Query, want int) (last events.Cursor) {
		t.Helper()
		q.Once = true
		came := 0
		err := st.Events(s.ctx, q, func(e *events.Stored) error {
			last = e.Cursor
			came++
			return nil
		})
		if came != want || err != nil {
			t.Errorf("%d events come, %v; want %d", came, err, want)
		}
		return last
	}
	write(web1, 50)
	written(50)
	place := read(events.Query{Since: time.Now().Add(-time.Hour)}, 50)

	s.remade(t, "MUSTER_EVENTS")
	write(web2, 10)
	written(10)
	next := read(events.Query{After: &place}, 10)
	write(web2, 70)
	written(80)
	read(events.Query{After: &next}, 70)
}
