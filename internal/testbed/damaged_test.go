package testbed

import (
	"context"
	"errors"
	"path/filepath"
	"slices"

	"muster/provisioner"
	"muster/provisioner/events"
	"muster/provisioner/orders"
	"muster/provisioner/trust"

	"muster/internal/daemon"
	"muster/internal/setup"
	"muster/provisioner/store"
)

// Damaged starts the provisioner on a store that lost data and returns the error with which it ends before it serves.
func Damaged(f *Fleet) error {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), patience)
	defer cancel()
	err := load(f).Run(ctx, func() {
		f.t.Error("a provisioner serves from a damaged store")
	})
	if !errors.Is(err, store.ErrDamaged) || !daemon.NeedsOperator(err) {
		f.t.Errorf("started on a damaged store: %v, want %v", err, store.ErrDamaged)
	}
	return err
}

// AcceptLoss accepts the loss in the store of the stopped provisioner.
func AcceptLoss(f *Fleet) *orders.Recovery {
	f.t.Helper()
	r, err := setup.AcceptLoss(f.Context(), load(f), Operator())
	if err != nil {
		f.t.Fatal(err)
	}
	return r
}

func load(f *Fleet) *daemon.Daemon {
	f.t.Helper()
	opts := daemon.Options{Version: "test", Log: f.log.logger(), Now: f.Clock.Now}
	d, err := daemon.LoadWith(filepath.Join(f.Dir, "provisioner.yaml"), opts, func(c *daemon.Config) {
		c.Broker.Listen = f.cfg.Broker.Listen
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return d
}

// Restored drops the events about certificates without a record, after a backup was restored.
func (f *Fleet) Restored() {
	f.t.Helper()
	known := map[string]bool{"": true}
	err := f.daemon.Store().Revisions(f.Context(), "", func(r *provisioner.Record, _ trust.Revision) error {
		for _, i := range []*provisioner.Issued{r.Current, r.Next} {
			if i != nil {
				known[i.Serial] = true
			}
		}
		return nil
	})
	if err != nil {
		f.t.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events = slices.DeleteFunc(f.events, func(e events.Event) bool { return !known[e.Serial] })
}
