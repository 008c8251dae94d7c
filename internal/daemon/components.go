package daemon

import (
	"context"
	"errors"
	"reflect"
	"sync/atomic"
	"time"

	"muster/internal/disk"
	"muster/internal/span"
	"muster/provisioner/fleet"
)

const (
	// Operators see a change within two seconds on any provisioner.
	featuresInterval = time.Second

	componentTimeout = 2 * time.Second
)

// A componentReporter publishes the state of this provisioner's features.
type componentReporter struct {
	*Daemon
	since       time.Time
	self        atomic.Pointer[fleet.Component]
	publishedAt time.Time        // only used by run
	published   *fleet.Component // only used by run
}

func (d *Daemon) newComponentReporter(ctx context.Context) *componentReporter {
	r := &componentReporter{Daemon: d, since: d.opts.Now().UTC().Truncate(time.Second)}
	r.self.Store(r.snapshot(ctx))
	return r
}

func (r *componentReporter) snapshot(ctx context.Context) *fleet.Component {
	free := ""
	if n := r.monitor.free.Load(); n > 0 {
		free = disk.Size(n).String()
	}
	return &fleet.Component{
		Schema:   fleet.ComponentSchema,
		Name:     r.cfg.Name,
		Process:  r.id,
		Version:  r.opts.Version,
		Site:     r.parts.site,
		URL:      r.APIURL(),
		Reserved: r.parts.reserved.Hosts(),
		Since:    r.since,
		Free:     free,
		Features: status{r.Daemon}.features(ctx),
		Alarms:   r.alarms.Standing(),
	}
}

// run publishes changes at once, and a heartbeat every few seconds. Lost messages do not matter.
func (r *componentReporter) run(ctx context.Context) error {
	_ = span.Every(ctx, featuresInterval, func(ctx context.Context) {
		now := r.snapshot(ctx)
		r.self.Store(now)
		if !reflect.DeepEqual(now, r.published) || time.Since(r.publishedAt) >= fleet.ComponentEvery {
			r.publish(ctx, now)
		}
	})
	gone := r.snapshot(ctx)
	gone.Stopped = true
	r.publish(context.WithoutCancel(ctx), gone)
	return nil
}

func (r *componentReporter) publish(ctx context.Context, c *fleet.Component) {
	ctx, cancel := context.WithTimeout(ctx, componentTimeout)
	defer cancel()
	if r.Store().PutComponent(ctx, c) != nil {
		return
	}
	if r.cfg.Broker.URL != "" { // else this provisioner is the only one
		if all, err := r.Store().Components(ctx); err == nil {
			var hosts []string
			for _, c := range all {
				hosts = append(hosts, c.Reserved...)
			}
			r.parts.reserved.SetPeers(hosts, r.live.conn.Load().Servers())
		}
	}
	r.publishedAt, r.published = time.Now(), c
}

func (r *componentReporter) Self() *fleet.Component { return r.self.Load() }

// All returns all provisioners by name, or this one and an error if the store does not answer.
func (r *componentReporter) All(ctx context.Context) ([]*fleet.HeardComponent, error) {
	bounded, cancel := context.WithTimeout(ctx, componentTimeout)
	defer cancel()
	self := r.Self()
	all, err := r.Store().Components(bounded)
	if err != nil {
		return []*fleet.HeardComponent{{Component: *self, Heard: r.opts.Now().UTC()}}, errors.Join(errPeersUnknown, err)
	}
	fleet.MarkGone(all)
	for _, c := range all {
		if c.Name == self.Name && c.Process == self.Process {
			c.Component, c.Gone = *self, false
		}
	}
	return all, nil
}

var errPeersUnknown = errors.New("other provisioners are not known: the store does not answer")
