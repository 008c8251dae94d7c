package daemon

import (
	"context"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/broker"
)

// newKeeper returns the keeper of this daemon's broker and store.
func (d *Daemon) newKeeper() *keeper {
	lowWater, _ := parseBytes(d.cfg.Store.LowWater) // valid, or New would not have come here
	k := &keeper{
		dir: d.storeDir(), lowWater: lowWater, alarms: d.alarms, log: d.opts.Log,
		probe:  func(ctx context.Context) error { return d.Store().Probe(ctx) },
		wrote:  func() bool { return d.Store().Wrote() },
		report: func(ctx context.Context, e provisioner.Event) error { return d.Store().Report(ctx, e) },
		reopen: func(ctx context.Context) error { return d.Store().Reopen(ctx) },
		watched: map[wire.Code]func() error{
			wire.CodeAuthorityExpired:      d.parts.authority.Usable,
			provisioner.AlarmPolicyRefused: d.parts.policy.Refused,
			wire.CodePaused:                d.paused,

			provisioner.AlarmBrokersMisconfigured: d.misconfigured,
		},
		setRoom: func(bytes int64) { d.Store().SetRoom(bytes) },
		nudged:  make(chan struct{}, 1),
	}
	if d.cfg.Broker.URL != "" {
		// The disks are others', and so is what they do when one is full. Ours
		// holds the journal of revocations.
		k.dir = d.cfg.DataDir
		k.whole = func(ctx context.Context) error { return d.Store().Whole(ctx) }
		k.returns = func() uint64 { return d.conn.Load().Stats().Reconnects }
		return k
	}
	k.restart = func(ctx context.Context) error { return d.embedded.Restart(ctx) }
	k.usage = func() (broker.Usage, error) { return d.embedded.Usage() }
	k.limit = d.storeLimit
	return k
}

// Alarms returns what an operator must act on, the oldest first.
func (d *Daemon) Alarms() []provisioner.Alarm { return d.alarms.Standing() }

// paused returns what is paused and why, nil if nothing is or nobody knows yet.
func (d *Daemon) paused() error {
	if p := d.provisioner.Load(); p != nil {
		return p.Paused()
	}
	return nil
}

// AcceptClock takes the clock as it is for right, against the mark in the
// store; see [provisioner.Clock.Accept].
func (d *Daemon) AcceptClock(ctx context.Context, why provisioner.Cause) error {
	p := d.provisioner.Load()
	if p == nil {
		return errNotOpen
	}
	return p.AcceptClock(ctx, why)
}
