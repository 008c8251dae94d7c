package provisioner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/provisioner/trust"
)

// CatchUp reads what must be known before anybody is served: revocations, of
// which those in the journal that the store lacks are appended to it again, and CRLs, of which there is an unexpired one of each issuer when it
// returns, unless one is too long, or the clock is behind: they stay until it is right. It may be
// called again after an error. Until then, and without Run after [trust.MaxAge],
// everybody is refused.
func (p *Provisioner) CatchUp(ctx context.Context) error {
	if err := p.revocations.Restore(ctx); err != nil {
		return fmt.Errorf("revocations: %w", err)
	}
	if err := p.Gate.RecoveryAlarm(); err != nil {
		p.cfg.Log.WarnContext(ctx, "in recovery", "err", err)
	}
	p.watcher.watchAllowsAll(ctx)
	// An operator must reach us while the clock is behind, to accept it.
	if err := p.crls.Update(ctx); err != nil && !errors.Is(err, trust.ErrClock) {
		return fmt.Errorf("CRL: %w", err)
	}
	return nil
}

// Run completes revocations, keeps the CRLs, lists who waits, and journals the revocations of other provisioners, until ctx is done. It owns every goroutine of the package and returns nil.
func (p *Provisioner) Run(ctx context.Context) error {
	var g errgroup.Group
	g.Go(func() error { return every(ctx, watchEvery, p.watcher.watchViews) })
	g.Go(func() error { return every(ctx, watchEvery, p.watcher.journalRead) })
	g.Go(func() error { return p.enforcing.enforceAll(ctx) })
	g.Go(func() error { return every(ctx, crlEvery, p.watcher.keepCRLs) })
	g.Go(func() error { return p.waiters.Run(ctx) })
	return g.Wait()
}

// A watcher keeps journal, CRLs and alarms up with the views.
type watcher struct {
	*Provisioner

	crlsFailed bool
}

// journalRead journals what was read of revocations.
func (w *watcher) journalRead(ctx context.Context) {
	if err := w.revocations.WriteJournal(); err != nil {
		w.cfg.Log.ErrorContext(ctx, "revocations not journaled", "err", err)
	}
}

// every calls what again and again until ctx is done.
func every(ctx context.Context, d time.Duration, what func(context.Context)) error {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			what(ctx)
		}
	}
}
