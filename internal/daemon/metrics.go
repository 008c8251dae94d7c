package daemon

import (
	"context"
	"errors"
	"time"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/metrics"
)

// Live certificates are counted so often, and at least a hundred times as long
// apart as it takes: a million records take some ten seconds of CPU.
const (
	countEvery = 10 * time.Minute
	countShare = 100
)

// observe hands an event to those who are told beside the store.
func (d *Daemon) observe(e provisioner.Event) {
	d.metrics.Event(e)
	if d.opts.Emit != nil {
		d.opts.Emit(e)
	}
}

// state is what metrics look up at a scrape.
func (d *Daemon) state() metrics.State {
	now := metrics.State{
		InHand: d.inHand.Load(), Sources: d.budget.Sources(), Alarms: d.alarms.Standing(), AuthorityEnds: d.parts.authority.NotAfter(),
		Certificates: d.certificates.Load(), Webhooks: d.webhooks.List(), TopSource: d.attempts.Most(),
		StoreUp: d.Store() != nil && d.keeper.storeBroken() == nil && d.alarms.Stands(wire.CodeStoreUnavailable) == nil,
	}
	if s := d.Store(); s != nil {
		now.EventsDropped = s.Lost()
	}
	if p := d.provisioner.Load(); p != nil {
		now.Frozen, now.Paused = p.Frozen(), len(p.Pauses())
	}
	if d.keeper.usage != nil {
		if u, err := d.keeper.usage(); err == nil { // else the alarm says what ails it
			now.Stored = &metrics.Stored{Used: u.Stored, Limit: u.Limit}
		}
	}
	return now
}

// countCertificates counts live certificates by when they end, again and again
// until ctx is done. A count that fails leaves the one before it.
func (d *Daemon) countCertificates(ctx context.Context) error {
	for {
		began := time.Now()
		var c metrics.Certificates
		err := d.Store().Newest(ctx, func(r *provisioner.Record) error {
			if r.Current != nil && r.State != provisioner.StateRevoked && r.State != provisioner.StateRetired {
				c.Add(r.Current.NotAfter, d.opts.Now())
			}
			return nil
		})
		if err == nil {
			d.certificates.Store(&c)
		} else if !errors.Is(err, context.Canceled) {
			d.opts.Log.WarnContext(ctx, "certificates not counted", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(max(countEvery, countShare*time.Since(began))):
		}
	}
}
