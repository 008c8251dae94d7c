package node

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
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
	verb wire.Verb
	stop func() // ends it

	mu      sync.Mutex
	waiting map[wire.Identity]*awaited // guarded by mu
}

// An awaited is a node that is to do a command.
type awaited struct {
	command   string     // its id
	commanded time.Time  // zero: not yet, as far as is known
	ended     time.Time  // when something happened that may be the end of it
	cause     error      // of that; nil: done
	told      chan error // has room for one
}

// startWatch begins to hear.
func startWatch(ctx context.Context, client *httpapi.Client, verb wire.Verb) (*watch, error) {
	since, err := client.Clock(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var reading sync.WaitGroup
	w := &watch{verb: verb, waiting: map[wire.Identity]*awaited{}}
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

// hear takes in an event. Events of a moment may be read in any order, and some of what happened before the
// command are read after it: of what may be the command's end, the last counts.
func (w *watch) hear(e *events.Stored) {
	w.mu.Lock()
	defer w.mu.Unlock()
	a := w.waiting[wire.Identity(e.Subject)]
	if a == nil {
		return
	}
	var d events.Event
	if json.Unmarshal(e.Data, &d) != nil {
		return
	}
	at, cause := e.Time, error(nil)
	switch {
	case e.Type == events.Commanded && d.Command == a.command:
		a.commanded, at = e.Time, time.Time{}
	case e.Type == events.Refused && !wire.MeaningOf(d.Code).Retry:
		cause = fmt.Errorf("it has taken the command, and was refused: %s: %s", d.Code, d.Cause)
	case e.Type != fleet.DoneBy[w.verb]:
		return
	case strings.HasPrefix(string(e.Type), events.OfServer):
		at = e.RecordedTime // a node's own clock may be far off
	}
	if !at.Before(a.ended) && !at.IsZero() {
		a.ended, a.cause = at, cause
	}
	if !a.commanded.IsZero() && !a.ended.IsZero() && !a.ended.Before(a.commanded) {
		select {
		case a.told <- a.cause:
		default: // it is known already
		}
	}
}

// await sends a node its command and waits until it has done it.
func (w *watch) await(ctx context.Context, id wire.Identity, command string, patience time.Duration, send func() error) error {
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
		return fmt.Errorf("it has taken the command, and was not heard of within %v: see `muster node explain %s`", patience, id)
	case <-ctx.Done():
		return ctx.Err()
	}
}
