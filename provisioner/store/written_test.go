package store_test

import (
	"errors"
	"testing"
	"time"

	"muster/provisioner/trust"

	"muster/provisioner/events"
)

// TestWritten counts synced writes, without refused ones and events.
func TestWritten(t *testing.T) {
	t.Parallel()
	st, s := newStore(t)
	before, err := st.Written(s.ctx)
	if err != nil {
		t.Fatal(err)
	}
	first := put(t, s, st, record(web1, "a1"), 0)
	put(t, s, st, record(web1, "a2"), first)
	if _, err := st.Put(s.ctx, record(web1, "a3"), first); !errors.Is(err, trust.ErrConflict) {
		t.Fatalf("a record is written on an old revision: %v, want %v", err, trust.ErrConflict)
	}
	st.Emit(events.Event{Type: events.Attempt, Time: time.Now()})
	if after, err := st.Written(s.ctx); err != nil || after != before+2 {
		t.Errorf("%d written, %v, want %d", after, err, before+2)
	}
}
