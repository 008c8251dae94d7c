package provisioner

import (
	"context"

	"muster/internal/wire"
	"muster/provisioner/events"
)

// ReportRun reports a failed run of an unmodified agent with its cause, or without a cause the first run after it that
// did not fail.
func (p *Provisioner) ReportRun(ctx context.Context, id wire.Identity, cause string) {
	e := events.Event{Type: events.RunRecovered, Time: p.moment(), Node: string(id), Cause: cause}
	if cause != "" {
		e.Type = events.RunFailed
	}
	if !allowRepeat(p.repeats.messages, &e) {
		return
	}
	p.cfg.Emit(e)
	if cause == "" {
		p.cfg.Log.InfoContext(ctx, "node's run succeeded again", "node", id)
	} else {
		p.cfg.Log.WarnContext(ctx, "node's run failed", "node", id, "err", cause)
	}
}
