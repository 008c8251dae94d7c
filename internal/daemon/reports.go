package daemon

import (
	"context"

	"golang.org/x/sync/errgroup"

	"muster/internal/disk"
	"muster/policies"
	"muster/provisioner/events"
	"muster/provisioner/metrics"
	"muster/provisioner/store"
)

func (c *Config) inputBytes() int64 {
	n, _ := disk.ParseSize(c.Inputs.MaxBytes) // validated before
	return int64(n)
}

type reports struct {
	*base
	metrics  *metrics.Metrics
	recorder *store.Recorder // nil if inputs are not recorded
	shadow   *shadow         // may be nil
}

func newReports(b *base) (*reports, error) {
	r := &reports{base: b}
	if b.parts.shadow != nil {
		r.shadow = &shadow{reports: r, policy: b.parts.shadow, waiting: make(chan shadowed, maxShadowQueue)}
	}
	if !b.cfg.Inputs.Enabled {
		return r, nil
	}
	var err error
	r.recorder, err = store.NewRecorder(b.opts.Log)
	return r, err
}

func (r *reports) decided(in *policies.Input, decision *policies.Decision, err error, asked string) {
	if r.recorder != nil {
		r.recorder.Observe(in, decision, err, asked)
	}
	if r.shadow != nil {
		r.shadow.observe(in, decision, err, asked)
	}
}

func (r *reports) runShadow(ctx context.Context) error {
	if r.shadow == nil {
		return nil
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return r.parts.shadow.Run(ctx) })
	g.Go(func() error { return r.shadow.run(ctx) })
	return g.Wait()
}

// report publishes and counts an event.
func (r *reports) report(e events.Event) {
	if s := r.Store(); s != nil {
		s.Emit(e)
	}
	r.metrics.Event(e)
	if r.opts.Emit != nil {
		r.opts.Emit(e)
	}
}

func (r *reports) record(ctx context.Context) error {
	if r.recorder == nil {
		return nil
	}
	return r.recorder.Run(ctx, func() *store.Store { return r.Store() })
}
