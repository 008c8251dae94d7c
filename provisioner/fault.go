package provisioner

import (
	"context"
	"errors"
	"slices"
	"time"

	"muster/internal/wire"
	"muster/provisioner/events"
	"muster/provisioner/facts"
	"muster/provisioner/trust"
)

// A Fault is what keeps a connected node from renewing its certificate, as its agent reports.
type Fault struct {
	Cause string    `json:"cause"`
	At    time.Time `json:"at"` // when it was first reported
}

// Text returns the cause, or "" for nil.
func (f *Fault) Text() string {
	if f == nil {
		return ""
	}
	return f.Cause
}

// NoteFault puts on record what a node's event says; cause is "" if nothing keeps the node from renewing. A lost event
// or a crash is harmless: every later event says the same.
func (p *Provisioner) NoteFault(ctx context.Context, id wire.Identity, serial, cause string) {
	cause = events.FaultText(cause)
	if cause == p.cfg.FaultOf(id) {
		return
	}
	if _, ok := p.repeats.messages.Take(string(id)); !ok {
		return
	}
	r, err := p.amend(ctx, id, serial, func(r *Record) bool {
		if cause == r.Fault.Text() {
			return false
		}
		r.Fault = nil
		if cause != "" {
			r.Fault = &Fault{Cause: cause, At: p.now()}
		}
		return true
	})
	if err != nil {
		p.cfg.Log.WarnContext(ctx, "fault not recorded", "node", id, "code", CodeOf(err), "err", err)
	}
	if r == nil {
		return
	}
	e := events.Event{
		Type:    events.FaultEnded,
		Time:    p.moment(),
		Node:    string(r.Identity),
		Attempt: r.Attempt,
	}
	if r.Fault == nil {
		p.cfg.Log.InfoContext(ctx, "node can renew again", "node", r.Identity)
	} else {
		e.Type, e.Cause = events.Faulty, r.Fault.Cause
		p.cfg.Log.WarnContext(ctx, "node cannot renew as it should", "node", r.Identity, "err", e.Cause)
	}
	p.cfg.Emit(e)
}

// ReportRun reports a failed run of an unmodified agent, or without a cause the first run after it that did not fail.
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

// keptFacts returns the facts for the record. Those before stay if the node could not send any.
func (a *attempt) keptFacts() facts.Facts {
	if a.request.FactsError != "" && len(a.request.Facts) == 0 && a.record != nil && !a.reason.changesHands() {
		return a.record.Facts
	}
	return a.kept.Kept(a.request.Facts)
}

// Neither a crash nor a full store matters: the next request tries again.
func (a *attempt) updateFacts(ctx context.Context) error {
	facts := a.keptFacts()
	if a.kept == nil || slices.Equal(facts, a.record.Facts) {
		return nil
	}
	next := *a.record
	next.Facts, next.Attempt, next.UpdatedAt = facts, a.id, a.now()
	next.keepSuperseded(a.record, next.UpdatedAt)
	err := a.publish(ctx, &next)
	if errors.Is(err, trust.ErrStoreFull) {
		return nil
	}
	return err
}
