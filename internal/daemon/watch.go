package daemon

import (
	"context"
	"path/filepath"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/broker"
)

// storeDir is where the broker keeps its streams.
func (d *Daemon) storeDir() string { return filepath.Join(d.cfg.DataDir, "broker") }

// storeLimit is what JetStream may take, as the disk is now.
func (d *Daemon) storeLimit() (int64, error) {
	limit, _, err := d.opts.StoreSize(d.storeDir())
	return limit, err
}

// newKeeper returns the keeper of this daemon's broker and store.
func (d *Daemon) newKeeper() *keeper {
	lowWater, _ := parseBytes(d.cfg.Store.LowWater) // valid, or New would not have come here
	return &keeper{
		dir: d.storeDir(), lowWater: lowWater, alarms: d.alarms, log: d.opts.Log,
		probe:   func(ctx context.Context) error { return d.Store().Probe(ctx) },
		report:  func(ctx context.Context, e provisioner.Event) error { return d.Store().Report(ctx, e) },
		restart: func(ctx context.Context) error { return d.broker.Restart(ctx) },
		reopen:  func(ctx context.Context) error { return d.Store().Reopen(ctx) },
		watched: map[wire.Code]func() error{
			wire.CodeAuthorityExpired: d.parts.authority.Usable,
		},
		usage:   func() (broker.Usage, error) { return d.broker.Usage() },
		limit:   d.storeLimit,
		setRoom: func(bytes int64) { d.Store().SetRoom(bytes) },
		nudged:  make(chan struct{}, 1),
	}
}

// Alarms returns what an operator must act on, the oldest first.
func (d *Daemon) Alarms() []provisioner.Alarm { return d.alarms.Standing() }

// AcceptClock takes the clock as it is for right, against the mark in the
// store; see [provisioner.Clock.Accept].
func (d *Daemon) AcceptClock(ctx context.Context, why provisioner.Cause) error {
	p := d.provisioner.Load()
	if p == nil {
		return errNotOpen
	}
	return p.AcceptClock(ctx, why)
}
