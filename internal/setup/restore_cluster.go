package setup

import (
	"context"
	"errors"
	"time"

	"muster/internal/daemon"
	"muster/provisioner/store"
)

// brokersComeUp is how long brokers that have just started may take to be of use: they elect a leader for each
// stream, in 4 to 9 s measured.
const brokersComeUp = time.Minute

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
		into, err := f.begin(ctx, store.Config{Conn: cfg.Conn, Replicas: cfg.Replicas, Log: cfg.Log, Now: f.Now})
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

// begin makes the streams. Servers that have just come up are asked again for a
// while: beginning anew throws away what the try before has left.
func (f *filling) begin(ctx context.Context, cfg store.Config) (*store.Import, error) {
	ctx, cancel := context.WithTimeout(ctx, brokersComeUp)
	defer cancel()
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for {
		into, err := store.NewImport(ctx, cfg, f.out.ID)
		if err == nil || errors.Is(err, store.ErrNotEmpty) || ctx.Err() != nil {
			return into, err
		}
		cfg.Log.WarnContext(ctx, "the brokers are not of use yet, trying again", "err", err)
		select {
		case <-ctx.Done():
			return nil, err
		case <-again.C:
		}
	}
}
