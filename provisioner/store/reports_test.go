package store_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"muster/provisioner/trust"
)

func TestTheClockMarkIsComparedAndSet(t *testing.T) {
	t.Parallel()
	st, s := newStore(t)
	if m, after, err := st.Clock.ClockMark(s.ctx); m != nil || after != 0 || err != nil {
		t.Fatalf("ClockMark of a new store = %v at %d, %v", m, after, err)
	}
	first := &trust.ClockMark{Time: time.Unix(1000, 0).UTC()}
	revision, err := st.Clock.PutClockMark(s.ctx, first, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Clock.PutClockMark(s.ctx, first, 0); !errors.Is(err, trust.ErrConflict) {
		t.Errorf("a second first mark = %v, want %v", err, trust.ErrConflict)
	}
	if m, after, err := st.Clock.ClockMark(s.ctx); err != nil || !m.Time.Equal(first.Time) || after != revision {
		t.Errorf("ClockMark = %v at %d, %v, want %v at %d", m, after, err, first, revision)
	}
}

// TestAProbeIsAWrite: a store whose connection is gone, or whose stream is, has
// none.
func TestAProbeIsAWrite(t *testing.T) {
	t.Parallel()
	st, s := newStore(t)
	for range 100 { // more than the entry's history
		if err := st.Probe(s.ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.js.DeleteStream(s.ctx, "MUSTER_ENTRIES"); err != nil {
		t.Fatal(err)
	}
	if err := st.Probe(s.ctx); err == nil || !strings.Contains(err.Error(), "probe store") {
		t.Errorf("Probe without a stream = %v, want an error", err)
	}
}
