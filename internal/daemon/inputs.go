package daemon

import (
	"context"
	"io"
	"time"

	"muster/policies"
	"muster/provisioner/store"
)

// inputBytes is the bound on what decisions saw; 0 is the store's own.
func (c *Config) inputBytes() int64 {
	n, _ := parseBytes(c.Inputs.MaxBytes) // valid, or New would not have come here
	return int64(n)
}

// observer returns who is told of each decision, nil if nobody is.
func (d *Daemon) observer() func(*policies.Input, *policies.Decision, error, string) {
	if d.recorder == nil {
		return nil
	}
	return d.recorder.Observe
}

// record writes what decisions saw until ctx is done, and then what is left.
func (d *Daemon) record(ctx context.Context) error {
	if d.recorder == nil {
		<-ctx.Done()
		return nil
	}
	return d.recorder.Run(ctx, func() *store.Store { return d.Store() })
}

// Inputs writes what decisions saw in the last age; see [store.Store.Inputs].
func (d *Daemon) Inputs(ctx context.Context, age time.Duration, started func(batches uint64), w io.Writer) error {
	s := d.Store()
	if s == nil {
		return errNotOpen
	}
	return s.Inputs(ctx, age, started, w)
}
