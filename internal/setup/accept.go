package setup

import (
	"context"

	"muster/provisioner/orders"

	"muster/provisioner/trust"

	"muster/internal/daemon"
	"muster/provisioner/store"
)

// AcceptLoss has a store that has lost data go on with what it has, in recovery: see [orders.Recovery]. The
// provisioner of d does not run meanwhile. It may be killed and repeated.
func AcceptLoss(ctx context.Context, d *daemon.Daemon, why trust.Cause) (r *orders.Recovery, err error) {
	err = d.WithStore(ctx, "recovery", func(cfg store.Config) error {
		r, err = store.AcceptLoss(ctx, cfg, why)
		return err
	})
	return r, err
}
