package store_test

import (
	"errors"
	"testing"
	"time"

	"muster/internal/wire"
	"muster/provisioner/events"
)

// remade has the events of a stream lost, as with a disk, and the stream made anew by another provisioner.
func (s *site) remade(t *testing.T, stream string) {
	t.Helper()
	if err := s.js.DeleteStream(s.ctx, stream); err != nil {
		t.Fatal(err)
	}
	s.open(t, ours)
}

// TestEventsOfALogThatWasLost has somebody follow events while they are lost, and others go
// on behind the last one that they had, before the new log is as long and after it: all that
// are new come, once.
func TestEventsOfALogThatWasLost(t *testing.T) {
	t.Parallel()
	st, s := newStore(t)
	write := func(id wire.Identity, n int) {
		for range n {
			st.Emit(events.Event{Type: events.Enrolled, Node: string(id), Time: time.Now()})
		}
	}
	// written waits until the log has so many.
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
	read := func(q events.Query, want int) (last events.Place) {
		t.Helper()
		q.Once = true
		came := 0
		err := st.Events(s.ctx, q, func(e *events.Stored) error {
			last = e.Place
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

	began, went := make(chan bool, 1), make(chan int, 1)
	go func() {
		// As whoever follows does: cut off, go on behind what came last.
		after, came := events.Place{Events: place.Events - 1}, 0
		ended := errors.New("all have come")
		for came < 11 && s.ctx.Err() == nil {
			_ = st.Events(s.ctx, events.Query{After: &after}, func(e *events.Stored) error {
				after = e.Place
				if came++; came == 1 {
					began <- true
				}
				if came == 11 {
					return ended
				}
				return nil
			})
		}
		went <- came
	}()
	<-began
	s.remade(t, "MUSTER_EVENTS")
	write(web2, 10)
	written(10)
	if came := <-went; came != 11 {
		t.Errorf("to whoever follows a log that is lost %d events come, want its last one and 10", came)
	}

	next := read(events.Query{After: &place}, 10)
	write(web2, 70)
	written(80)
	read(events.Query{After: &next}, 70)
	read(events.Query{After: &place}, 80) // of one that was away all the time
}

// TestALogOfEventsBeginsWhereItBegan opens the store again, as one is that is upgraded or
// gets replicas: its logs keep their events, and their places.
func TestALogOfEventsBeginsWhereItBegan(t *testing.T) {
	t.Parallel()
	st, s := newStore(t)
	s.said(t, web1, "startup", 0)
	s.lives(t, st, web1, "io.muster.server.startup")
	before, err := s.js.Stream(s.ctx, "MUSTER_LIFECYCLE")
	if err != nil {
		t.Fatal(err)
	}
	open(t, s)
	after, err := s.js.Stream(s.ctx, "MUSTER_LIFECYCLE")
	if err != nil {
		t.Fatal(err)
	}
	was, is := before.CachedInfo(), after.CachedInfo()
	if is.State.Msgs != 1 || is.State.FirstSeq != was.State.FirstSeq || is.Config.FirstSeq != was.Config.FirstSeq || was.Config.FirstSeq == 0 {
		t.Errorf("it begins at %d, by its configuration at %d, with %d events; want %d, %d and 1",
			is.State.FirstSeq, is.Config.FirstSeq, is.State.Msgs, was.State.FirstSeq, was.Config.FirstSeq)
	}
}
