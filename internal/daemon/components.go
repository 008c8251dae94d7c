package daemon

import (
	"context"
	"errors"
	"reflect"
	"sync/atomic"
	"time"

	"muster/provisioner/fleet"
)

const (
	// featuresEvery is how often features are looked at: an operator who watches
	// sees a change within two seconds, on any provisioner.
	featuresEvery = time.Second

	// componentTimeout bounds one exchange with the store about components.
	componentTimeout = 2 * time.Second
)

// A register says what this provisioner's features do, here and to all others.
type register struct {
	*Daemon
	since    time.Time
	self     atomic.Pointer[fleet.Component]
	saidAt   time.Time        // only touched by run
	lastSaid *fleet.Component // only touched by run
}

// newRegister returns the daemon's register. The store is open.
func (d *Daemon) newRegister(ctx context.Context) *register {
	r := &register{Daemon: d, since: d.opts.Now().UTC().Truncate(time.Second)}
	r.self.Store(r.look(ctx))
	return r
}

// look returns this provisioner as it is now.
func (r *register) look(ctx context.Context) *fleet.Component {
	return &fleet.Component{
		Schema:   fleet.ComponentSchema,
		Name:     r.cfg.Name,
		Process:  r.id,
		Version:  r.opts.Version,
		Site:     r.parts.site,
		URL:      r.APIURL(),
		Since:    r.since,
		Features: status{r.Daemon}.features(ctx),
		Alarms:   r.alarms.Standing(),
	}
}

// run looks at the features until ctx is done, tells the store what has changed
// at once and that we are there every few seconds, and at last that we stop.
// Nothing of it has to arrive: what is not told now is told with the next look,
// and who says nothing is gone.
func (r *register) run(ctx context.Context) error {
	tick := time.NewTicker(featuresEvery)
	defer tick.Stop()
	for {
		now := r.look(ctx)
		r.self.Store(now)
		if !reflect.DeepEqual(now, r.lastSaid) || time.Since(r.saidAt) >= fleet.ComponentEvery {
			r.say(ctx, now)
		}
		select {
		case <-ctx.Done():
			gone := *r.look(ctx)
			gone.Stopped = true
			r.say(context.WithoutCancel(ctx), &gone)
			return nil
		case <-tick.C:
		}
	}
}

// say tells the store.
func (r *register) say(ctx context.Context, c *fleet.Component) {
	ctx, cancel := context.WithTimeout(ctx, componentTimeout)
	defer cancel()
	said := *c // what is done lately differs each time, and is no reason to say so
	said.Activity = r.activity.lately()
	if r.Store().Components.PutComponent(ctx, &said) != nil {
		return
	}
	r.saidAt, r.lastSaid = time.Now(), c
}

// Self returns this provisioner with its features as they were a second ago.
func (r *register) Self() *fleet.Component {
	self := *r.self.Load()
	self.Activity = r.activity.lately()
	return &self
}

// All returns all provisioners of the installation, by name, this one as it is
// now. If the store does not answer, it is the only one, and the error says so.
func (r *register) All(ctx context.Context) ([]*fleet.HeardComponent, error) {
	bounded, cancel := context.WithTimeout(ctx, componentTimeout)
	defer cancel()
	self := r.Self()
	all, err := r.Store().Components.Components(bounded)
	if err != nil {
		return []*fleet.HeardComponent{{Component: *self, Heard: r.opts.Now().UTC()}}, errors.Join(errOthersUnknown, err)
	}
	fleet.MarkGone(all)
	for _, c := range all {
		if c.Name == self.Name && c.Process == self.Process {
			c.Component, c.Gone = *self, false
		}
	}
	return all, nil
}

// errOthersUnknown says that a list of components has only the one that was asked.
var errOthersUnknown = errors.New("other provisioners are not known: the store does not answer")
