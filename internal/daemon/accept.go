package daemon

import (
	"context"

	"muster/provisioner"
	"muster/provisioner/broker"
	"muster/provisioner/store"
)

// AcceptLoss has a store that has lost data go on with what it has, in recovery: see [provisioner.Recovery]. No
// provisioner runs meanwhile on the same data directory. It may be killed and repeated. Instead of Run, once.
func (d *Daemon) AcceptLoss(ctx context.Context, why provisioner.Cause) (*provisioner.Recovery, error) {
	if d.embedded != nil { // or what cannot be read would be missed anew
		if err := broker.ReadAnew(d.storeDir()); err != nil {
			return nil, err
		}
	}
	if err := d.broker.Start(ctx); err != nil {
		return nil, startError(err)
	}
	r, err := d.acceptLoss(ctx, why)
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if stopped := d.broker.Stop(stop); err == nil && stopped != nil {
		return nil, stopped
	}
	return r, err
}

func (d *Daemon) acceptLoss(ctx context.Context, why provisioner.Cause) (*provisioner.Recovery, error) {
	conn, err := d.broker.Connect("recovery")
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return store.AcceptLoss(ctx, d.storeConfig(conn, 0), why)
}
