package daemon

import (
	"context"
	"errors"
	"time"

	"muster/provisioner/httpapi"
)

// HealthConfig configures a listener for the probes of a service manager.
type HealthConfig struct {
	// Empty: none.
	Listen string `yaml:"listen"`

	Metrics bool `yaml:"metrics"`
}

func (c *HealthConfig) validate(v *Mistakes) {
	switch {
	case c.Listen != "":
		v.Listen("health.listen", c.Listen)
	case c.Metrics:
		v.Bad("health.metrics", "set without health.listen")
	}
}

// hangs bounds a look at all parts, which takes milliseconds.
const hangs = time.Minute

var (
	errHangs      = errors.New("the loop over all parts hangs")
	errNotServing = errors.New("the provisioner starts or stops")
)

func (d *Daemon) startProbes(ctx context.Context) (stop func() error, err error) {
	if d.cfg.Health.Listen == "" {
		return func() error { return nil }, nil
	}
	cfg := httpapi.ProbesConfig{
		Listen: d.cfg.Health.Listen,
		Alive:  func(context.Context) map[string]error { return map[string]error{"states": d.hangs(ctx)} },
		Ready: func(asked context.Context) map[string]error {
			if !d.serves(ctx) {
				return map[string]error{"provisioner": errNotServing}
			}
			return status{d}.ready(asked)
		},
		Log: d.opts.Log,
	}
	if d.cfg.Health.Metrics {
		cfg.Metrics = d.reports.metrics.Handler()
	}
	probes, err := httpapi.OpenProbes(cfg)
	if err != nil {
		return nil, listenError(err, "health.listen")
	}
	d.opts.Log.InfoContext(ctx, "probes are answered", "url", probes.URL())
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- probes.Run(life) }()
	return func() error {
		cancel()
		return <-ended
	}, nil
}

func (d *Daemon) serves(ctx context.Context) bool { return d.live.serving.Load() && ctx.Err() == nil }

func (d *Daemon) hangs(ctx context.Context) error {
	if last := d.monitor.looked.Load(); d.serves(ctx) && last != nil && time.Since(*last) > hangs {
		return errHangs
	}
	return nil
}
