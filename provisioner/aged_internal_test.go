package provisioner

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"muster/provisioner/trust"

	"muster/jwt"
)

// farLog is a log of claims of which each entry takes its way.
type farLog struct {
	*memory
	way time.Duration
}

func (f farLog) Claims(ctx context.Context, tid jwt.TokenID, after trust.Revision, each func(*ClaimEntry, trust.Revision) error) error {
	return f.memory.Claims(ctx, tid, after, func(e *ClaimEntry, at trust.Revision) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(f.way):
		}
		return each(e, at)
	})
}

// TestALongLogIsReadInTheEnd has a process that has just started claim a use of a token
// that has thousands, at a store that is far. No single request has the time to read
// all of them.
func TestALongLogIsReadInTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, token := &memory{}, &TokenInfo{ID: "t", Uses: 1 << 20}
		for i := range 5000 {
			m.log = append(m.log, &ClaimEntry{Schema: ClaimSchema, Claims: []TokenClaim{*claimOf(i, token).claim}})
		}
		log := farLog{m, 10 * time.Millisecond}
		s := newLedgers(log, slog.New(slog.DiscardHandler), time.Now)
		var err error
		for range 4 {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			err = s.post(ctx, claimOf(-1, token))
			cancel()
			if err == nil {
				break
			}
		}
		if err != nil || len(m.log) != 5001 {
			t.Errorf("after two minutes: %v, %d entries, want one more than 5000", err, len(m.log))
		}
	})
}
