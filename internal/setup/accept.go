package setup

import (
	"context"

	"muster/provisioner/orders"

	"muster/provisioner/trust"

	"muster/internal/daemon"
	"muster/provisioner/store"
)

// AcceptLoss puts a store that has lost data into recovery, see [orders.Recovery]. The provisioner of d must not run.
// Repeating it is harmless.
func AcceptLoss(ctx context.Context, d *daemon.Daemon, why trust.Cause) (r *orders.Recovery, err error) {
	err = d.WithStore(ctx, "recovery", func(cfg store.Config) error {
		r, err = store.AcceptLoss(ctx, cfg, why)
		return err
	})
	return r, err
}
