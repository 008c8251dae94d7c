package store_test

import (
	"strings"
	"testing"

	"muster/provisioner/waiting"

	"muster/provisioner/trust"
)

// TestRepeatedRequestKeepsItsPendingEntry drops an old revision of an entry that was written again.
func TestRepeatedRequestKeepsItsPendingEntry(t *testing.T) {
	t.Parallel()
	s, stop := start(t, t.TempDir())
	defer stop()
	st := s.open(t, ours)
	w := &waiting.Key{Schema: waiting.Schema, Identity: web1, KeyHash: strings.Repeat("0", 64)}
	other := *w
	other.KeyHash = strings.Repeat("1", 64)
	put := func(w *waiting.Key, after trust.Revision) trust.Revision {
		t.Helper()
		if err := st.PutWaiter(s.ctx, w, after); err != nil {
			t.Fatal(err)
		}
		got, at, err := st.Waiter(s.ctx, w.Identity, w.KeyHash)
		if err != nil || got == nil {
			t.Fatalf("%+v, %v", got, err)
		}
		return at
	}
	count := func(upTo trust.Revision, want int) {
		t.Helper()
		if err := st.DropWaiter(s.ctx, w.Identity, w.KeyHash, upTo); err != nil {
			t.Fatal(err)
		}
		n := 0
		err := st.Waiters(s.ctx, w.Identity, func(*waiting.Key, trust.Revision) error { n++; return nil })
		if err != nil || n != want {
			t.Errorf("%d wait when what was there at %d is dropped, want %d: %v", n, upTo, want, err)
		}
	}
	first := put(w, 0)
	put(&other, 0)
	again := put(w, first)
	count(0, 2)
	count(first, 2)
	count(again, 1)
	count(again, 1)
	// A dropped entry is written like a new one.
	count(put(w, 0)-1, 2)
}
