package daemon

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
)

// elsewhere has the broker drop connections of certificates that are not live any more by
// what other processes have written. Each looks at the servers that it knows itself, and at no
// others: nobody sees the connections at a site but the site's own provisioners, nor they
// those at the hub. Where there are no sites, nobody has to look but who wrote. Make one with
// newElsewhere.
type elsewhere struct {
	site    jwt.Site // ours
	recheck func(ctx context.Context, ids ...wire.Identity) (again []wire.Identity, err error)

	// everybody has all connections looked at, some time soon. It does not block.
	everybody func()

	// every is between two looks, each of which may list all connections: others may write
	// thousands of records a second. Nobody is late by more. A connection takes less to appear
	// after it was admitted, so everybody is looked at twice.
	every time.Duration

	log *slog.Logger

	mu    sync.Mutex
	known bool                        // guarded by mu: the other provisioners are
	apart bool                        // guarded by mu: one of them is of another site than we are, or was
	told  map[wire.Identity]time.Time // guarded by mu: since when a node is to be looked at
	wake  chan struct{}               // holds one signal while there is something to do
}

// elsewhereEvery is between two looks of an elsewhere; chosen, more than
// broker.AdmissionInFlight. A list has 1.1 KB for each connection, and where there are many,
// somebody renews all the time.
const elsewhereEvery = 15 * time.Second

// newElsewhere returns one for a provisioner of site, which is "" at the hub.
func newElsewhere(site jwt.Site, every time.Duration, log *slog.Logger) *elsewhere {
	return &elsewhere{site: site, every: every, log: log, told: make(map[wire.Identity]time.Time), wake: make(chan struct{}, 1)}
}

// add has the connections of a node looked at. It does not block.
func (e *elsewhere) add(id wire.Identity) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.known && !e.apart {
		return
	}
	e.told[id] = time.Now()
	signal(e.wake)
}

// listed has everybody looked at once more, once all records have been read for the first time:
// what was written between the look at the start and the first reading of a record is no
// change that anybody has seen. It does not block.
func (e *elsewhere) listed() {
	e.mu.Lock()
	apart := e.apart || !e.known
	e.mu.Unlock()
	if apart {
		e.everybody()
	}
}

// sees takes in which provisioners there are. Where one was of another site, there are sites:
// that it is gone says nothing of its brokers. It does not block.
func (e *elsewhere) sees(all []*provisioner.HeardComponent) {
	apart := slices.ContainsFunc(all, func(c *provisioner.HeardComponent) bool { return c.Site != e.site })
	e.mu.Lock()
	unheeded := apart && e.known && !e.apart // what others wrote until now
	e.known, e.apart = true, e.apart || apart
	if !e.apart {
		clear(e.told)
	}
	e.mu.Unlock()
	signal(e.wake)
	if unheeded {
		e.everybody()
	}
}

// run looks until ctx is done. What is left then is for the next start, which looks at
// everybody.
func (e *elsewhere) run(ctx context.Context) error {
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-e.wake:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(max(gatherTime, e.every-time.Since(last))):
		}
		if now := time.Now(); e.look(ctx, now) {
			last = now
		}
	}
}

// look looks at all that are told, and keeps those for a later look whose connections may
// still appear, or could not be dealt with. It reports whether there was anybody to look at.
func (e *elsewhere) look(ctx context.Context, now time.Time) bool {
	e.mu.Lock()
	ids := slices.Collect(maps.Keys(e.told))
	if !e.apart {
		ids = nil // until it is known, or there is one
	}
	e.mu.Unlock()
	if len(ids) == 0 {
		return false
	}
	again, err := e.recheck(ctx, ids...)
	if err != nil && ctx.Err() == nil {
		e.log.WarnContext(ctx, "connections of certificates superseded elsewhere not all dropped, trying again", "err", err)
	}
	left := make(map[wire.Identity]bool, len(again))
	for _, id := range again {
		left[id] = true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, id := range ids {
		if !left[id] && now.Sub(e.told[id]) >= e.every {
			delete(e.told, id)
		}
	}
	if len(e.told) > 0 {
		signal(e.wake)
	}
	return true
}

// lookElsewhere runs what looks for others, if there are any.
func (d *Daemon) lookElsewhere(ctx context.Context) error {
	if d.others == nil {
		return nil
	}
	return d.others.run(ctx)
}

// seeOthers takes in which provisioners there are. It is only called by the register.
func (d *Daemon) seeOthers(ctx context.Context, all []*provisioner.HeardComponent) {
	d.compareFacts(ctx, all)
	d.compareKeys(all)
	if d.others != nil {
		d.others.sees(all)
	}
}
