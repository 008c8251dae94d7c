package daemon

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"muster/provisioner/store"
)

// intoCluster makes the store on the brokers that broker.url names. What is there
// says from its first message on that it is no store yet, and no provisioner
// opens it; the last message says that it is one.
func (f *filling) intoCluster(ctx context.Context) error {
	d, err := Load(f.Config, Options{Log: f.Log, Now: f.Now, Keys: f.Keys}) //nolint:contextcheck // bounded by the time-out of the policy's tests
	if err != nil {
		return err
	}
	f.Step("connecting to "+d.broker.URL(), -1)
	starting, cancel := context.WithTimeout(ctx, storeComesUp)
	defer cancel()
	if err := d.broker.Start(starting); err != nil {
		return startError(err)
	}
	defer func() { _ = d.broker.Stop(context.WithoutCancel(ctx)) }() // what was written is acknowledged
	conn, err := d.broker.Connect("restore")
	if err != nil {
		return err
	}
	defer conn.Close()
	f.Reached("connected")
	into, err := f.begin(ctx, d, conn)
	if err != nil {
		return err
	}
	f.Reached("streams made")
	if err := f.copy(ctx, into); err != nil {
		return err
	}
	f.Reached("done")
	return nil
}

// begin makes the streams. Servers that have just come up are asked again for a
// while: beginning anew throws away what the try before has left.
func (f *filling) begin(ctx context.Context, d *Daemon, conn *nats.Conn) (*store.Import, error) {
	ctx, cancel := context.WithTimeout(ctx, storeComesUp)
	defer cancel()
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for {
		into, err := store.NewImport(ctx, store.Config{Conn: conn, Replicas: d.cfg.Store.Replicas, Log: d.opts.Log, Now: f.Now}, f.out.ID)
		if err == nil || errors.Is(err, store.ErrNotEmpty) || ctx.Err() != nil {
			return into, err
		}
		d.opts.Log.WarnContext(ctx, "the brokers are not of use yet, trying again", "err", err)
		select {
		case <-ctx.Done():
			return nil, err
		case <-again.C:
		}
	}
}
