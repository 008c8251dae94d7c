package daemon

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"muster/provisioner/store"
	"muster/provisioner/trust"
)

// withdrawalEvery is how often a provisioner looks for faults of its own.
const withdrawalEvery = 200 * time.Millisecond

// A withdrawal keeps this provisioner out of the queue groups that share the requests of nodes and the questions of
// brokers, while it has a fault of its own: others answer then. What ails the store is no such fault: the answer is
// `busy`. Make one with newWithdrawal.
type withdrawal struct {
	fault func() error // why this provisioner must not answer, nil if it may
	log   *slog.Logger

	mu      sync.Mutex
	out     bool          // guarded by mu
	changed chan struct{} // guarded by mu: closed when out changes
}

func newWithdrawal(fault func() error, log *slog.Logger) *withdrawal {
	return &withdrawal{fault: fault, log: log, changed: make(chan struct{})}
}

// now returns whether this provisioner has withdrawn, and what is closed when that changes.
func (w *withdrawal) now() (out bool, changed <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.out, w.changed
}

// run looks until ctx is done. It returns nil.
func (w *withdrawal) run(ctx context.Context) error {
	return every(ctx, withdrawalEvery, func() { w.look(ctx) })
}

// look withdraws or comes back.
func (w *withdrawal) look(ctx context.Context) {
	why := w.fault()
	w.mu.Lock()
	defer w.mu.Unlock()
	if (why != nil) == w.out {
		return
	}
	w.out = why != nil
	close(w.changed)
	w.changed = make(chan struct{})
	if w.out {
		w.log.ErrorContext(ctx, "requests left to other provisioners", "err", why)
	} else {
		w.log.InfoContext(ctx, "requests taken again")
	}
}

// ownFault returns why this provisioner must not answer nodes and brokers, nil if it may: its clock is wrong, or it
// cannot read what brokers ask. A broker inside of the process has one provisioner alone, which answers always.
func (l *link) ownFault() error {
	clock := l.live.clock.Load()
	if l.external == nil || clock == nil {
		return nil
	}
	if err := clock.Check(); err != nil {
		return err
	}
	if err := clock.Differs(); err != nil {
		return err
	}
	return l.external.Unread()
}

// clockConfig has the clock compared with that of a store on other machines.
func (l *link) clockConfig(s *store.Clock) trust.ClockConfig {
	cfg := trust.ClockConfig{
		Store:  s,
		Alarms: l.alarms,
		Log:    l.opts.Log,
		Now:    l.opts.Now,
	}
	if l.external != nil {
		cfg.StoreTime = func(ctx context.Context) (time.Time, error) {
			at, err := s.Time(ctx)
			if l.opts.StoreTime != nil {
				at = l.opts.StoreTime(at)
			}
			return at, err
		}
	}
	return cfg
}
