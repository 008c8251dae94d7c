package daemon

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"muster/internal/disk"
	"muster/internal/span"
	"muster/internal/wire"
	"muster/provisioner/broker"
	"muster/provisioner/events"
	"muster/provisioner/httpapi"
	"muster/provisioner/store"
	"muster/provisioner/trust"
)

const (
	watchInterval = time.Second
	probeInterval = 10 * time.Second // without an alarm

	// With three brokers on two cores, a write took 4 to 5 s under load (measured).
	probeTimeout = 10 * time.Second
)

// A monitor updates the alarms about dependencies. It begins once the store is open.
type monitor struct {
	*link
	lowWater disk.Size
	fail     func(error) // ends the process without an orderly stop
	watched  map[wire.Code]func() error

	stalled atomic.Pointer[error]        // why the store's disk does not answer, or nil
	full    atomic.Pointer[error]        // error of the last probe if the store was full, or nil
	used    atomic.Pointer[broker.Usage] // last answer of JetStream
	free    atomic.Int64                 // bytes on the disk when it last answered, or 0
	looked  atomic.Pointer[time.Time]    // when watchStates last looked at all parts
}

func newMonitor(l *link, fail func(error)) *monitor {
	lowWater, _ := disk.ParseSize(l.cfg.Store.LowWater) // validated before
	k := &monitor{
		link:     l,
		lowWater: lowWater,
		fail:     fail,
		watched: map[wire.Code]func() error{
			wire.CodeAuthorityExpired: l.parts.authority.Usable,
			events.AlarmPolicyRefused: l.parts.policy.Refused,
			wire.CodePaused:           func() error { return l.Orders().Pauses.Standing() },
			events.AlarmRecovery:      func() error { return l.Operator().Gate.RecoveryAlarm() },
			events.AlarmEndsSoon:      l.EndsSoon,
			events.AlarmPendingFull:   func() error { return l.Orders().Keys.Full() },
			events.AlarmSiteQuiet:     func() error { return l.live.nodes.Load().Quiet() },
			events.AlarmNodesFaulty:   func() error { return l.live.nodes.Load().Faulty(l.opts.Now()) },
		},
	}
	if l.external != nil {
		k.watched[events.AlarmBrokersMisconfigured] = l.external.CalloutError
	}
	return k
}

func (k *monitor) watchStates(ctx context.Context) error {
	return span.Every(ctx, watchInterval, func(ctx context.Context) {
		// Anything new that ends soon is an alarm of its own.
		before, ends := k.alarms.Stands(events.AlarmEndsSoon), k.watched[events.AlarmEndsSoon]()
		if before != nil && ends != nil && before.Error() != ends.Error() {
			k.alarms.Set(ctx, events.AlarmEndsSoon, nil)
		}
		for code, state := range k.watched {
			k.alarms.Keep(ctx, code, state)
		}
		now := time.Now()
		k.looked.Store(&now)
		k.opts.Alive()
	})
}

// err may be nil.
func (k *monitor) setStalled(ctx context.Context, err error) {
	if err == nil {
		k.stalled.Store(nil)
		return
	}
	k.stalled.Store(&err)
	k.alarms.Set(ctx, wire.CodeStoreUnavailable, err) // at once, since a probe may wait too
}

// watchStore returns [store.ErrDamaged] if the embedded store has lost data.
func (k *monitor) watchStore(ctx context.Context) error {
	var probed time.Time
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	err := span.Every(ctx, watchInterval, func(ctx context.Context) {
		if err := k.live.followers.Load().journal.Err(); err != nil {
			k.fail(err)
			return
		}
		if err := k.checkWatermark(ctx); err != nil {
			if errors.Is(err, store.ErrWatermark) {
				k.fail(err)
				return
			}
			k.alarms.Set(ctx, wire.CodeStoreUnavailable, err)
			if k.embedded != nil {
				end(err) // stop: nothing on its disk can be trusted
			}
			return
		}
		if k.alarms.Stands(wire.CodeStoreUnavailable) != nil || time.Since(probed) >= probeInterval {
			err := k.probe(ctx)
			if ctx.Err() != nil {
				return
			}
			k.alarms.Set(ctx, wire.CodeStoreUnavailable, err)
			probed = time.Now()
		}
	})
	if cause := context.Cause(ctx); errors.Is(cause, store.ErrDamaged) {
		return cause
	}
	return err
}

// checkWatermark returns nil if the store does not answer.
func (k *monitor) checkWatermark(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return k.Store().CheckWatermark(ctx)
}

// probe returns nil for a full store: it answers.
func (k *monitor) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	err := k.Store().Probe(ctx)
	k.full.Store(nil)
	stalled := k.stalled.Load()
	switch {
	case stalled != nil:
		return *stalled
	case errors.Is(err, trust.ErrStoreFull):
		k.full.Store(&err)
		return nil
	case err != nil:
		return fmt.Errorf("no answer to a write: %w", err)
	}
	return nil
}

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
