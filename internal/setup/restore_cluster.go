package setup

import (
	"context"

	"muster/internal/daemon"
	"muster/provisioner/store"
)

// intoCluster makes the store on the brokers that broker.url names. What is there
// says from its first message on that it is no store yet, and no provisioner
// opens it; the last message says that it is one.
func (f *filling) intoCluster(ctx context.Context) error {
	d, err := daemon.Load(f.Config, daemon.Options{Log: f.Log, Now: f.Now, Keys: f.Keys}) //nolint:contextcheck // bounded by the time-out of the policy's tests
	if err != nil {
		return err
	}
	f.Step("connecting to "+d.BrokerURL(), -1)
	return d.WithStore(ctx, "restore", func(cfg store.Config) error {
		f.Reached("connected")
		// Beginning anew throws away what the try before has left.
		begin := func(ctx context.Context) (*store.Import, error) {
			return store.NewImport(ctx, store.Config{Conn: cfg.Conn, Replicas: cfg.Replicas, Log: cfg.Log, Now: f.Now}, f.out.ID)
		}
		into, err := daemon.AwaitStore(ctx, cfg.Log, begin, store.ErrNotEmpty)
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
