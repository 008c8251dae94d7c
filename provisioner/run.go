package provisioner

import (
	"context"
	"errors"
	"fmt"
	"time"

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
	if err := p.updateCRLs(ctx); err != nil && !errors.Is(err, trust.ErrClock) {
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

// A healthy store answers within milliseconds.
const finishTimeout = 5 * time.Second

// Finishing returns a context that ends finishTimeout after ctx, so that no change is cut off between its write and
// its event.
func Finishing(ctx context.Context) (finishing context.Context, end func()) {
	finishing, cancel := context.WithCancel(context.WithoutCancel(ctx))
	given := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(finishTimeout, cancel)
		context.AfterFunc(finishing, func() { timer.Stop() })
	})
	return finishing, func() { given(); cancel() }
}

// Revocations within one interval are put on one CRL.
const crlEvery = 400 * time.Millisecond

// CRLs returns the CRLs of this process: none before [Provisioner.CatchUp].
func (p *Provisioner) CRLs() *trust.CRLs { return p.crls }

// PuppetCRLs returns the CRLs of the authority's branch, or nil without Puppet.
func (p *Provisioner) PuppetCRLs() *trust.CRLs { return p.puppetCRLs }

// AllCRLs returns the newest CRL of each issuer, the present one's first, that of the branch last.
func (p *Provisioner) AllCRLs() []*trust.CRL {
	all := p.crls.All()
	if p.puppetCRLs != nil {
		all = append(all, p.puppetCRLs.All()...)
	}
	return all
}

func (p *Provisioner) updateCRLs(ctx context.Context) error {
	err := p.crls.Update(ctx)
	if p.puppetCRLs != nil {
		err = errors.Join(err, p.puppetCRLs.Update(ctx))
	}
	return err
}

func (w *watcher) keepCRLs(ctx context.Context) {
	err := w.updateCRLs(ctx)
	if ctx.Err() != nil {
		return
	}
	switch failed := err != nil; {
	case failed && !w.crlsFailed:
		w.cfg.Log.ErrorContext(ctx, "CRL not renewed; the previous one is in use until it expires", "err", err)
	case !failed && w.crlsFailed:
		w.cfg.Log.InfoContext(ctx, "CRL renewed again", "number", w.crls.Newest().Number)
	}
	w.crlsFailed = err != nil
}
