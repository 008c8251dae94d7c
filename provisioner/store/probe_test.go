package store_test

import (
	"strings"
	"testing"
)

// TestProbeIsAWrite fails without a connection or stream.
func TestProbeIsAWrite(t *testing.T) {
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
