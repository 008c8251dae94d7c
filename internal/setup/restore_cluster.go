package setup

import (
	"context"

	"muster/internal/daemon"
	"muster/provisioner/store"
)

// intoCluster fills the store on the brokers of broker.url. Its first message marks it as incomplete, and no
// provisioner opens it; its last message completes it.
func (f *filling) intoCluster(ctx context.Context) error {
	d, err := daemon.Load( //nolint:contextcheck // bounded by the time-out of the policy's tests
		f.Config, daemon.Options{Log: f.Log, Now: f.Now, Keys: f.Keys})
	if err != nil {
		return err
	}
	f.Step("connecting to "+d.BrokerURL(), -1)
	return d.WithStore(ctx, "restore", func(cfg store.Config) error {
		f.Reached("connected")
		// This deletes the incomplete store of an earlier attempt.
		begin := func(ctx context.Context) (*store.Import, error) {
			into := store.Config{Conn: cfg.Conn, Replicas: cfg.Replicas, Log: cfg.Log, Now: f.Now}
			return store.NewImport(ctx, into, f.out.ID)
		}
		into, err := daemon.AwaitStore(ctx, begin, store.ErrNotEmpty)
		if err != nil {
			return err
		}
		f.Reached("streams made")
		if err := f.copy(ctx, into); err != nil {
			return err
		}
		f.Reached("done")
		return nil
	})
}
