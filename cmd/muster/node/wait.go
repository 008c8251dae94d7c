package node

import (
	"context"
	"fmt"
	"sync"
	"time"

	"muster/internal/span"
	"muster/internal/wire"
	"muster/provisioner/events"
	"muster/provisioner/fleet"
	"muster/provisioner/httpapi"
)

const (
	// clockSlack is subtracted from the provisioner's time when events are requested: HTTP has whole seconds, and the
	// broker stamps events by its own clock.
	clockSlack = 3 * time.Second

	// followAgain is the pause before events are followed again after an interruption. A provisioner starts in about a
	// second.
	followAgain = time.Second
)

// A watch learns from events which nodes have carried out their commands. The local clock does not matter.
type watch struct {
	stop func() // ends it

	mu      sync.Mutex
	waiting map[wire.Identity]*awaited // guarded by mu
}

// An awaited is a node with an unfinished command.
type awaited struct {
	command string         // its id
	events  []events.Event // of the node
	told    chan error     // buffered for the one outcome
}

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

// follow reads events until ctx is done. After an interruption, such as a restart of the provisioner, it continues
// where it stopped.
func (w *watch) follow(ctx context.Context, client *httpapi.Client, since time.Time) {
	for {
		// The error does not matter: a node without a report fails after its time-out.
		_ = client.Events(ctx, events.Query{Since: since, Type: "io.muster."}, func(e *events.Stored, _ []byte) error {
			if e.Type == events.Commanded {
				since = e.Time.Add(-clockSlack) // a time that nodes cannot influence
			}
			w.hear(e)
			return nil
		})
		if !span.Sleep(ctx, followAgain) {
			return
		}
	}
}

// hear adds an event to those of its node. Events of one moment may come in any order.
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
		err = fmt.Errorf("the node accepted the command, and was refused: %s: %s", o.Refused, o.Cause)
	}
	select {
	case a.told <- err:
	default: // the outcome is known already
	}
}

// await sends a command and waits until the node has carried it out.
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
		return fmt.Errorf("the node accepted the command, and did not report within %v: see `muster node explain %s`",
			patience, id)
	case <-ctx.Done():
		return ctx.Err()
	}
}
