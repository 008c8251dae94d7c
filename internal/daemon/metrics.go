package daemon

import (
	"muster/internal/wire"
	"muster/provisioner/events"
	"muster/provisioner/metrics"
)

// observe hands an event to those who are told beside the store.
func (d *Daemon) observe(e events.Event) {
	d.metrics.Event(e)
	if d.opts.Emit != nil {
		d.opts.Emit(e)
	}
}

// state is what metrics look up at a scrape.
func (d *Daemon) state() metrics.State {
	now := metrics.State{
		InHand: d.inHand.Load(), Sources: d.budget.Sources(), Alarms: d.alarms.Standing(), AuthorityEnds: d.parts.authority.NotAfter(),
		Webhooks: d.webhooks.List(), TopSource: d.attempts.Most(),
		StoreUp: d.Store() != nil && d.alarms.Stands(wire.CodeStoreUnavailable) == nil,
	}
	if x := d.nodes.Load(); x != nil {
		now.Certificates, _ = x.Summary(d.opts.Now()) // nil while the records are being read
	}
	if s := d.Store(); s != nil {
		now.EventsDropped = s.Lost()
	}
	if o := d.orders.Load(); o != nil {
		now.Frozen, now.Paused = d.provisioner.Load().Frozen(), len(o.Pauses.List())
	}
	for _, c := range d.CRLs() {
		now.CRLBytes = max(now.CRLBytes, len(c.DER))
	}
	if u := d.keeper.used.Load(); u != nil { // else the broker is others', or the alarm says what ails it
		now.Stored = &metrics.Stored{Used: u.Stored, Limit: u.Limit}
	}
	return now
}
