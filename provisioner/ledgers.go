package provisioner

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"muster/jwt"
)

// Bounds of what is remembered. A ledger is a cache of the log: dropping one
// costs reading the log again.
const (
	maxLedgers = 4096
	ledgerIdle = 10 * time.Minute
	sweepEvery = time.Minute
)

// ledgers are the ledgers of the tokens in use.
type ledgers struct {
	log  ClaimLog
	slog *slog.Logger
	now  func() time.Time

	mu    sync.Mutex
	open  map[jwt.TokenID]*ledger // guarded by mu
	swept time.Time               // guarded by mu
}

func newLedgers(log ClaimLog, l *slog.Logger, now func() time.Time) *ledgers {
	return &ledgers{log: log, slog: l, now: now, open: make(map[jwt.TokenID]*ledger)}
}

// post posts to the ledger of the token: see [ledger.post].
func (s *ledgers) post(ctx context.Context, p *posting) error {
	l := s.enter(p.token.ID)
	defer s.leave(l)
	return l.post(ctx, p)
}

// enter returns the token's ledger, which stays until leave.
func (s *ledgers) enter(tid jwt.TokenID) *ledger {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	s.sweep(now)
	l := s.open[tid]
	if l == nil {
		l = newLedger(s.log, tid, s.slog)
		s.open[tid] = l
	}
	l.users++
	l.used = now
	return l
}

func (s *ledgers) leave(l *ledger) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.users--
}

// sweep drops the ledgers that nobody has used for a while, and all that nobody
// uses now if there are too many.
func (s *ledgers) sweep(now time.Time) {
	crowded := len(s.open) >= maxLedgers
	if since := now.Sub(s.swept); !crowded && since >= 0 && since < sweepEvery {
		return
	}
	s.swept = now
	for tid, l := range s.open {
		if idle := now.Sub(l.used); l.users == 0 && (crowded || idle < 0 || idle >= ledgerIdle) {
			delete(s.open, tid)
		}
	}
}
