package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/fleet"
	"muster/provisioner/httpapi"
)

const (
	// clockSlack is how much earlier than the provisioner's clock says events are
	// asked for: HTTP tells that in whole seconds, and the broker stamps events by
	// its own clock; chosen.
	clockSlack = 3 * time.Second

	// followAgain is how long a stream of events that has ended waits for the next;
	// chosen, a provisioner starts in about a second.
	followAgain = time.Second
)

// returns hears which nodes have done what they were told, from the events of the
// fleet: that a node was commanded, and what has become of it since, both in the
// order and by the clocks of provisioners, so that ours does not matter.
type returns struct {
	verb wire.Verb

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

// awaitReturns begins to hear. stop ends it.
func awaitReturns(ctx context.Context, client *httpapi.Client, verb wire.Verb) (stop func(), _ *returns, err error) {
	since, err := client.Clock(ctx)
	if err != nil {
		return nil, nil, err
	}
	r := &returns{verb: verb, waiting: map[wire.Identity]*awaited{}}
	ctx, cancel := context.WithCancel(ctx)
	var reading sync.WaitGroup
	reading.Go(func() { r.follow(ctx, client, since.Add(-clockSlack)) })
	return func() { cancel(); reading.Wait() }, r, nil
}

// follow reads events until ctx is done. A stream that breaks, as when its
// provisioner is started anew, is gone on with where it was.
func (r *returns) follow(ctx context.Context, client *httpapi.Client, since time.Time) {
	for {
		// Why it has ended does not matter: a node that is not heard of is reported.
		_ = client.Events(ctx, provisioner.EventQuery{Since: since, Type: "io.muster."}, func(e *provisioner.StoredEvent, _ []byte) error {
			if e.Type == provisioner.EventCommanded {
				since = e.Time.Add(-clockSlack) // of a provisioner's clock, where a node's word is worth nothing
			}
			r.hear(e)
			return nil
		})
		if !sleep(ctx, followAgain) {
			return
		}
	}
}

// hear takes in an event.
func (r *returns) hear(e *provisioner.StoredEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.waiting[wire.Identity(e.Subject)]
	if a == nil {
		return
	}
	switch e.Type {
	case fleet.DoneBy[r.verb]:
		at := e.Time
		if strings.HasPrefix(string(e.Type), provisioner.EventOfServer) {
			at = e.RecordedTime // a node's own clock may be far off
		}
		a.follows(at, nil)
	case provisioner.EventCommanded, provisioner.EventRefused:
		var d provisioner.Event
		if json.Unmarshal(e.Data, &d) != nil {
			return
		}
		if e.Type == provisioner.EventCommanded && d.Command == a.command {
			a.begins(e.Time)
		}
		if e.Type == provisioner.EventRefused && !wire.MeaningOf(d.Code).Retry {
			a.follows(e.Time, fmt.Errorf("it has taken the command, and was refused: %s: %s", d.Code, d.Cause))
		}
	}
}

// begins takes in that the node was commanded.
func (a *awaited) begins(at time.Time) {
	a.commanded = at
	a.settle()
}

// follows takes in what may be the command's end, or why there is none. The last
// counts, in whatever order they are read.
func (a *awaited) follows(at time.Time, cause error) {
	if at.Before(a.ended) {
		return
	}
	a.ended, a.cause = at, cause
	a.settle()
}

// settle tells of the end, if it is the command's: events of a moment may be read in
// any order, and of what happened before the command some are read after it.
func (a *awaited) settle() {
	if !a.commanded.IsZero() && !a.ended.IsZero() && !a.ended.Before(a.commanded) {
		a.tell()
	}
}

func (a *awaited) tell() {
	select {
	case a.told <- a.cause:
	default: // it is known already
	}
}

// await sends a node its command and waits until it has done it. Who knows the
// command already was told before by somebody who has not heard of its end: it may
// have been refused since, so it is told once more, under another id.
func (r *returns) await(ctx context.Context, id wire.Identity, command string, patience time.Duration, tell func(command string) (repeated bool, err error)) error {
	a := &awaited{command: command, told: make(chan error, 1)}
	r.mu.Lock()
	r.waiting[id] = a
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.waiting, id)
		r.mu.Unlock()
	}()
	repeated, err := tell(command)
	if repeated && err == nil {
		command = wire.NewID()
		r.mu.Lock()
		a.command, a.commanded, a.ended = command, time.Time{}, time.Time{}
		r.mu.Unlock()
		_, err = tell(command)
	}
	if err != nil {
		return err
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case err := <-a.told:
		return err
	case <-late.C:
		return fmt.Errorf("it has taken the command, and was not heard of within %v: see `muster node explain %s`", patience, id)
	case <-ctx.Done():
		return ctx.Err()
	}
}
