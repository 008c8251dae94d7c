package store_test

import (
	"fmt"
	"testing"
	"time"

	"muster/provisioner/trust"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/broker"
)

// TestLongClaimLogTakesFewRequests counts requests: one per entry would take thousands of round trips.
func TestLongClaimLogTakesFewRequests(t *testing.T) {
	t.Parallel()
	s, _ := startWith(t, broker.Config{StoreDir: t.TempDir(), Unsynced: true})
	st := s.open(t, ours)
	const entries, few = 2000, 200
	const tid = jwt.TokenID("0f1e2d3c4b5a69780f1e2d3c4b5a6978")
	for i := range entries {
		e := &trust.ClaimEntry{Schema: trust.ClaimSchema, Claims: []trust.TokenClaim{
			{Key: "k", Identity: wire.Identity(fmt.Sprintf("web%d.example.net", i)), Attempt: wire.NewID(),
				At: time.Unix(1, 0)},
		}}
		if _, err := st.AppendClaims(s.ctx, tid, e, trust.AnyRevision); err != nil {
			t.Fatal(err)
		}
	}
	before := s.conn.Stats().OutMsgs
	last, n := trust.Revision(0), 0
	err := st.Claims(s.ctx, tid, 0, func(_ *trust.ClaimEntry, at trust.Revision) error {
		if at <= last {
			t.Fatalf("entry %d after %d", at, last)
		}
		last, n = at, n+1
		return nil
	})
	if err != nil || n != entries {
		t.Errorf("%d claims, %v, want %d", n, err, entries)
	}
	if sent := s.conn.Stats().OutMsgs - before; sent > few {
		t.Errorf("%d questions for %d claims, want %d at most", sent, entries, few)
	}
}
