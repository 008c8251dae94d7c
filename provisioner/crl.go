package provisioner

import (
	"context"
	"time"

	"muster/provisioner/trust"
)

// crlEvery is how often it is looked whether another CRL is due. What is
// revoked between two looks shares one.
const crlEvery = 400 * time.Millisecond

// CRLs returns what this process has signed of its issuers' CRLs: none before
// [Provisioner.CatchUp], or if the clock is behind.
func (p *Provisioner) CRLs() *trust.CRLs { return p.crls }

// keepCRLs signs the CRLs that are due, for Run.
func (w *watcher) keepCRLs(ctx context.Context) {
	err := w.crls.Update(ctx)
	if ctx.Err() != nil {
		return
	}
	switch failed := err != nil; {
	case failed && !w.crlsFailed:
		w.cfg.Log.ErrorContext(ctx, "CRL not brought up to date, the one before stays in use until it lapses", "err", err)
	case !failed && w.crlsFailed:
		w.cfg.Log.InfoContext(ctx, "CRL is up to date again", "number", w.crls.Newest().Number)
	}
	w.crlsFailed = err != nil
}
