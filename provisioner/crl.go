package provisioner

import (
	"context"
	"time"

	"muster/provisioner/trust"
)

// Revocations within one interval are put on one CRL.
const crlEvery = 400 * time.Millisecond

// CRLs returns the CRLs of this process: none before [Provisioner.CatchUp].
func (p *Provisioner) CRLs() *trust.CRLs { return p.crls }

func (w *watcher) keepCRLs(ctx context.Context) {
	err := w.crls.Update(ctx)
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
