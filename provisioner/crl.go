package provisioner

import (
	"context"
	"errors"
	"time"

	"muster/provisioner/events"
	"muster/provisioner/trust"
)

// crlEvery is how often it is looked whether another CRL is due. What is
// revoked between two looks shares one.
const crlEvery = 400 * time.Millisecond

// CRLs returns what this process has signed of its issuers' CRLs: none before
// [Provisioner.CatchUp], or if the clock is behind.
func (p *Provisioner) CRLs() *trust.CRLs { return p.crls }

// keepCRLs signs the CRLs that are due, for Run.
func (p *Provisioner) keepCRLs(ctx context.Context) {
	err := p.crls.Update(ctx)
	if ctx.Err() != nil {
		return
	}
	if err != nil && !p.crlsFailed {
		p.cfg.Log.ErrorContext(ctx, "CRL not brought up to date, the one before stays in use until it lapses", "err", err)
	}
	switch {
	case err == nil:
		p.cfg.Alarms.Clear(ctx, events.AlarmCRLTooLong)
	case errors.Is(err, trust.ErrCRLTooLong):
		p.cfg.Alarms.Raise(ctx, events.AlarmCRLTooLong, err)
	}
	if err == nil && p.crlsFailed {
		p.cfg.Log.InfoContext(ctx, "CRL is up to date again", "number", p.crls.Newest().Number)
	}
	p.crlsFailed = err != nil
}
