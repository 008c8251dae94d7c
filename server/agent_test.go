package server_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"muster/server"
)

type agent struct {
	tb   testing.TB
	log  *lockedBuffer
	stop func() error
	end  func() error
	done chan struct{}

	mu      sync.Mutex // guards the fields below
	events  []server.Event
	changed chan struct{}
}

// run starts an agent, which ends with the test at the latest. Observe of cfg gets each event first.
func (f *fleet) run(cfg server.Config) *agent {
	f.tb.Helper()
	a := &agent{tb: f.tb, log: f.log, changed: make(chan struct{}), done: make(chan struct{})}
	observe := cfg.Observe
	cfg.Observe = func(e server.Event) {
		if observe != nil {
			observe(e)
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.events = append(a.events, e)
		close(a.changed)
		a.changed = make(chan struct{})
	}
	s, err := server.New(cfg)
	if err != nil {
		f.tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var failed error
	go func() {
		defer close(a.done)
		failed = s.Run(ctx)
	}()
	a.stop = func() error {
		cancel()
		return a.wait(&failed)
	}
	a.end = func() error { return a.wait(&failed) }
	f.tb.Cleanup(func() {
		if err := a.stop(); err != nil && !errors.Is(err, server.ErrMode) && !errors.Is(err, server.ErrRestart) {
			f.tb.Errorf("Run = %v", err)
		}
	})
	return a
}

func (a *agent) wait(failed *error) error {
	select {
	case <-a.done:
		return *failed
	case <-time.After(patience):
		a.tb.Fatalf("Run does not return; log:\n%s", a.log.String())
		return nil
	}
}

// await waits for the n-th event of a kind and returns it.
func (a *agent) await(kind server.EventKind, n int) server.Event {
	a.tb.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		a.mu.Lock()
		seen, changed := 0, a.changed
		for _, e := range a.events {
			if e.Kind == kind {
				if seen++; seen == n {
					a.mu.Unlock()
					return e
				}
			}
		}
		a.mu.Unlock()
		select {
		case <-changed:
		case <-deadline.C:
			a.tb.Fatalf("waited %v for event %s, number %d; log:\n%s", patience, kind, n, a.log.String())
		}
	}
}
