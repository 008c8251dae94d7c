package daemon

import (
	"context"
	"io"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/internal/disk"
	"muster/policies"
	"muster/provisioner/events"
	"muster/provisioner/store"
)

// inputBytes is the bound on what decisions saw; 0 is the store's own.
func (c *Config) inputBytes() int64 {
	n, _ := disk.ParseSize(c.Inputs.MaxBytes) // valid, or New would not have come here
	return int64(n)
}

// observer returns who is told of each decision, nil if nobody is.
func (d *Daemon) observer() func(*policies.Input, *policies.Decision, error, string) {
	switch {
	case d.shadow == nil && d.recorder == nil:
		return nil
	case d.shadow == nil:
		return d.recorder.Observe
	case d.recorder == nil:
		return d.shadow.observe
	}
	return func(in *policies.Input, decision *policies.Decision, err error, asked string) {
		d.recorder.Observe(in, decision, err, asked)
		d.shadow.observe(in, decision, err, asked)
	}
}

// runShadow evaluates the shadow policy, if there is one, and watches its files.
func (d *Daemon) runShadow(ctx context.Context) error {
	if d.shadow == nil {
		<-ctx.Done()
		return nil
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return d.parts.shadow.Run(ctx) })
	g.Go(func() error { return d.shadow.run(ctx) })
	return g.Wait()
}

// report is where events of our own go.
func (d *Daemon) report(e events.Event) {
	if s := d.Store(); s != nil {
		s.Emit(e)
	}
	if d.opts.Emit != nil {
		d.opts.Emit(e)
	}
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
