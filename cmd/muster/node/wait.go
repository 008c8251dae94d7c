package node

import (
	"context"
	"fmt"
	"sync"
	"time"

	"muster/internal/wire"
	"muster/provisioner/events"
	"muster/provisioner/fleet"
	"muster/provisioner/httpapi"
)

const (
	// clockSlack is how much earlier than the provisioner's clock says events are
	// asked for: HTTP tells that in whole seconds, and the broker stamps events by
	// its own clock.
	clockSlack = 3 * time.Second

	// followAgain is how long a stream of events that has ended waits for the next:
	// a provisioner starts in about a second.
	followAgain = time.Second
)

// A watch hears which nodes have done what they were told, from the events of the
// fleet: that a node was commanded, and what has become of it since, both in the
// order and by the clocks of provisioners, so that ours does not matter.
type watch struct {
	stop func() // ends it

	mu      sync.Mutex
	waiting map[wire.Identity]*awaited // guarded by mu
}

// An awaited is a node that is to do a command.
type awaited struct {
	command string         // its id
	events  []events.Event // that the node is known by
	told    chan error     // has room for one
}

// startWatch begins to hear.
func startWatch(ctx context.Context, client *httpapi.Client) (*watch, error) {
	since, err := client.Clock(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var reading sync.WaitGroup
	w := &watch{waiting: map[wire.Identity]*awaited{}}
	w.stop = func() {
		cancel()
		reading.Wait()
	}
	reading.Go(func() { w.follow(ctx, client, since.Add(-clockSlack)) })
	return w, nil
}

// follow reads events until ctx is done. A stream that breaks, as when its
// provisioner is started anew, is gone on with where it was.
func (w *watch) follow(ctx context.Context, client *httpapi.Client, since time.Time) {
	for {
		// Why it has ended does not matter: a node that is not heard of is reported.
		_ = client.Events(ctx, events.Query{Since: since, Type: "io.muster."}, func(e *events.Stored, _ []byte) error {
			if e.Type == events.Commanded {
				since = e.Time.Add(-clockSlack) // of a provisioner's clock, where a node's word is worth nothing
			}
			w.hear(e)
			return nil
		})
		if !sleep(ctx, followAgain) {
			return
		}
	}
}

// hear takes in an event. Events of a moment may come in any order: of the node's, those since its command count.
func (w *watch) hear(e *events.Stored) {
	w.mu.Lock()
	defer w.mu.Unlock()
	a := w.waiting[wire.Identity(e.Subject)]
	if a == nil {
		return
	}
	a.events = append(a.events, e.Read())
	o := fleet.CommandOf(a.events)
	if o == nil || o.Command != a.command || o.Ended.IsZero() {
		return
	}
	var err error
	if o.Refused != "" {
		err = fmt.Errorf("the node took the command, and was refused: %s: %s", o.Refused, o.Cause)
	}
	select {
	case a.told <- err:
	default: // it is known already
	}
}

// await sends a node its command and waits until it has done it.
func (w *watch) await(
	ctx context.Context, id wire.Identity, command string, patience time.Duration, send func() error,
) error {
	a := &awaited{command: command, told: make(chan error, 1)}
	w.mu.Lock()
	w.waiting[id] = a
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		delete(w.waiting, id)
		w.mu.Unlock()
	}()
	if err := send(); err != nil {
		return err
	}
	select {
	case err := <-a.told:
		return err
	case <-time.After(patience):
		return fmt.Errorf("the node took the command, and did not report within %v: see `muster node explain %s`",
			patience, id)
	case <-ctx.Done():
		return ctx.Err()
	}
}
