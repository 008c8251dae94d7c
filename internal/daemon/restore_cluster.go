package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"muster/provisioner/store"
)

// ErrServed means that a provisioner is connected to the brokers that are to get
// a restored store: what it remembers is of another one. Stop all of them.
var ErrServed = errors.New("a provisioner of these brokers is running")

// intoCluster makes the store on the brokers that broker.url names. What is there
// says from its first message on that it is no store yet, and no provisioner
// opens it; the last message says that it is one.
func (r *Restore) intoCluster(ctx context.Context, since *since, out *Restored) error {
	d, err := Load(r.Config, Options{Log: r.Log, Now: r.Now, Keys: r.Keys}) //nolint:contextcheck // bounded by the time-out of the policy's tests
	if err != nil {
		return err
	}
	r.Step("connecting to "+d.broker.URL(), -1)
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
	if err := unserved(ctx, conn); err != nil {
		return err
	}
	r.Reached("connected")
	into, err := r.begin(ctx, d, conn, out.ID, func() time.Time { return since.time(r.Now()) })
	if err != nil {
		return err
	}
	// Who runs now was there before the first message, or will read it.
	if err := unserved(ctx, conn); err != nil {
		return err
	}
	r.Reached("streams made")
	if err := r.copy(ctx, into, since, out); err != nil {
		return err
	}
	r.Reached("done")
	return nil
}

// begin makes the streams. Servers that have just come up are asked again for a
// while: beginning anew throws away what the try before has left.
func (r *Restore) begin(ctx context.Context, d *Daemon, conn *nats.Conn, id string, now func() time.Time) (*store.Import, error) {
	ctx, cancel := context.WithTimeout(ctx, storeComesUp)
	defer cancel()
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for {
		into, err := store.NewImport(ctx, store.Config{Conn: conn, Replicas: d.cfg.Store.Replicas, Log: d.opts.Log, Now: now}, id)
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

// unserved returns [ErrServed] with the names of provisioners that are connected.
func unserved(ctx context.Context, conn *nats.Conn) error {
	for range 2 { // one that has just stopped may be asked, and not answer
		answers, alone, err := askPeers(ctx, conn, question{}, nil)
		if err != nil || alone {
			return err
		}
		if len(answers) > 0 {
			return fmt.Errorf("%w: %s: stop all of them", ErrServed, names(answers))
		}
	}
	return fmt.Errorf("%w, and does not say which: stop all of them", ErrServed)
}
