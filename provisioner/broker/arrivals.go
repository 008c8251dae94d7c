package broker

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/wire"
)

const (
	// trimPause is between two looks at what nodes have too many connections; chosen, a look at a
	// fleet of 50,000 takes half a second of each server.
	trimPause = 5 * time.Second

	// trimSingly is for how many nodes at most servers are asked about each by itself, which takes them
	// a few ms, and not about the fleet. Chosen.
	trimSingly = 8
)

// arrivals counts how often nodes connect to servers outside of the process, to find those that have
// more connections than [DefaultMaxPerNode]: nothing else there keeps a node from taking all that a server
// has. Who has connected as often since it was looked at may have, so the servers are asked.
// Each provisioner counts by itself. It is safe for concurrent use. Make one with [newArrivals].
type arrivals struct {
	due chan struct{} // has a message when somebody is to be looked at

	mu      sync.Mutex
	count   map[wire.Identity]int  // guarded by mu: since it was looked at
	suspect map[wire.Identity]bool // guarded by mu: to be looked at
}

func newArrivals() *arrivals {
	return &arrivals{due: make(chan struct{}, 1), count: make(map[wire.Identity]int), suspect: make(map[wire.Identity]bool)}
}

// add notes that a node is admitted.
func (a *arrivals) add(id wire.Identity) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.count[id]++; a.count[id] > DefaultMaxPerNode {
		a.suspect[id] = true
	}
	if len(a.suspect) > 0 {
		select {
		case a.due <- struct{}{}:
		default: // it is known
		}
	}
}

// take returns who is to be looked at, and counts for them anew: one who is admitted from then on
// may not be among those that servers list.
func (a *arrivals) take() []wire.Identity {
	a.mu.Lock()
	defer a.mu.Unlock()
	ids := make([]wire.Identity, 0, len(a.suspect))
	for id := range a.suspect {
		ids = append(ids, id)
		delete(a.count, id)
	}
	clear(a.suspect)
	return ids
}

// again has nodes looked at once more with the next one that is.
func (a *arrivals) again(ids []wire.Identity) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, id := range ids {
		a.suspect[id] = true
	}
}

// keepFew drops the oldest connections of nodes that have too many, until ctx is done. Dropping one twice is
// harmless, so other provisioners may do the same.
func (e *External) keepFew(ctx context.Context) {
	pause := time.NewTicker(trimPause)
	defer pause.Stop()
	arrived := e.callout.arrivals
	said := "" // as keepShares
	for {
		select {
		case <-ctx.Done():
			return
		case <-arrived.due:
		}
		ids := arrived.take()
		switch err := e.trim(ctx, ids); {
		case err == nil:
			said = ""
		case ctx.Err() == nil:
			arrived.again(ids)
			if err.Error() != said {
				said = err.Error()
				e.log.WarnContext(ctx, "connections of nodes with many not looked at to the end", "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
	}
}

// trim drops the oldest connections of those of these nodes that have too many. The error is that of
// connections.
func (e *External) trim(ctx context.Context, ids []wire.Identity) error {
	nc, err := e.running()
	if err != nil || len(ids) == 0 {
		return err
	}
	if len(ids) > trimSingly {
		return e.trimListed(ctx, nc, ids)
	}
	var errs []error
	for _, id := range ids {
		errs = append(errs, e.trimListed(ctx, nc, []wire.Identity{id}))
	}
	return errors.Join(errs...)
}

func (e *External) trimListed(ctx context.Context, nc *nats.Conn, ids []wire.Identity) error {
	all := make(map[wire.Identity][]connection)
	err := e.connections(ctx, nc, ids, func(held map[wire.Identity][]connection) {
		for id, list := range held {
			all[id] = append(all[id], list...)
		}
	})
	errs := []error{err}
	for _, list := range all {
		if len(list) <= DefaultMaxPerNode {
			continue
		}
		slices.SortFunc(list, func(a, b connection) int { // the newest first
			return cmp.Or(b.start.Compare(a.start), cmp.Compare(a.server, b.server), cmp.Compare(a.number, b.number))
		})
		for _, c := range list[DefaultMaxPerNode:] {
			errs = append(errs, c.kick(nc))
		}
	}
	return errors.Join(errs...)
}
