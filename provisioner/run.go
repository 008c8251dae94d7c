package provisioner

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"muster/internal/span"
	"muster/provisioner/trust"
)

// CatchUp reads revocations, appends those that only the journal has, and signs CRLs. It may be repeated. Before it
// returns, and after [trust.MaxAge] without Run, all requests are refused.
func (p *Provisioner) CatchUp(ctx context.Context) error {
	if err := p.revocations.Restore(ctx); err != nil {
		return fmt.Errorf("revocations: %w", err)
	}
	if err := p.Gate.RecoveryAlarm(); err != nil {
		p.cfg.Log.WarnContext(ctx, "in recovery", "err", err)
	}
	p.watcher.watchAllowsAll(ctx)
	if err := p.pending.Read(ctx); err != nil {
		return fmt.Errorf("pending list: %w", err)
	}
	// Not a wrong clock: an operator must be able to connect and accept it.
	if err := p.crls.Update(ctx); err != nil && !errors.Is(err, trust.ErrClock) {
		return fmt.Errorf("CRL: %w", err)
	}
	return nil
}

// Run returns nil when ctx is done. It owns every goroutine of the package.
func (p *Provisioner) Run(ctx context.Context) error {
	var g errgroup.Group
	g.Go(func() error { return span.Every(ctx, watchEvery, p.watcher.watchViews) })
	g.Go(func() error { return span.Every(ctx, watchEvery, p.watcher.writeJournal) })
	g.Go(func() error { return p.enforcing.enforceAll(ctx) })
	g.Go(func() error { return span.Every(ctx, crlEvery, p.watcher.keepCRLs) })
	g.Go(func() error { return p.pending.Run(ctx) })
	g.Go(func() error { p.recallTokens(ctx); return nil })
	return g.Wait()
}

type watcher struct {
	*Provisioner

	crlsFailed bool
}

func (w *watcher) writeJournal(ctx context.Context) {
	if err := w.revocations.WriteJournal(); err != nil {
		w.cfg.Log.ErrorContext(ctx, "revocations not journaled", "err", err)
	}
}
