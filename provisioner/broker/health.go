package broker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Errors of the store in a broker's process.
var (
	// ErrStoreFailed means that the store has failed a write, or that its directory is not the
	// one that was opened. nats-server does not write there again, and shows what is not on disk:
	// end the process, without [Broker.Stop], and start another one.
	ErrStoreFailed = errors.New("the store has failed")

	// ErrStoreDamaged means that a stream in the store directory could not be read. To start
	// again does not help.
	ErrStoreDamaged = errors.New("the store is damaged")
)

const (
	healthEvery = time.Second

	// slowAfter is when a disk counts as slow: a look waits for the lock of a stream that is
	// being written.
	slowAfter = 5 * time.Second

	// busyLooks is how often a busy server is asked again at a start: each look waits for a millisecond, so that is
	// five seconds at least.
	busyLooks = 5000
)

// Watch looks each second whether the store has failed. It returns an error that wraps
// [ErrStoreFailed] once two looks in a row have found that, and nil when ctx is done. slow is told
// why a look has no end yet, and gets nil when it has. It must not block.
func (b *Broker) Watch(ctx context.Context, slow func(error)) error {
	return watchHealth(ctx, func() error {
		b.mu.Lock()
		r := b.server
		b.mu.Unlock()
		if r == nil {
			return nil // it is stopping
		}
		return r.failed()
	}, slow)
}

// watchHealth is Watch for any look.
func watchHealth(ctx context.Context, health func() error, slow func(error)) error {
	tick := time.NewTicker(healthEvery)
	defer tick.Stop()
	failed := false
	for {
		err := lookAtHealth(ctx, health, slow)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && failed:
			return fmt.Errorf("%w: %w", ErrStoreFailed, err)
		}
		failed = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// lookAtHealth waits for one look. No context reaches it: it ends when the disk answers.
func lookAtHealth(ctx context.Context, health func() error, slow func(error)) error {
	done := make(chan error, 1)
	go func() { done <- health() }()
	late := time.NewTimer(slowAfter)
	defer late.Stop()
	for {
		select {
		case err := <-done:
			slow(nil)
			return err
		case <-late.C:
			slow(fmt.Errorf("the store's disk has not answered for %v", slowAfter))
		case <-ctx.Done():
			return nil
		}
	}
}

// storeFailed returns why the store of a server has failed, or nil. opened is a file of its
// directory that was opened at the start. An empty account is all.
func storeFailed(s *server.Server, account string, opened *os.File) error {
	mine, err := opened.Stat()
	if err != nil {
		return err
	}
	switch there, err := os.Stat(opened.Name()); {
	case errors.Is(err, os.ErrNotExist), err == nil && !os.SameFile(mine, there):
		return fmt.Errorf("%s is not what was opened at the start", opened.Name())
	case err != nil:
		return err
	}
	if err := healthOf(s, account, writeFailed); !errors.Is(err, errBusy) {
		return err
	}
	return nil // the next look tells
}

// errBusy means that a server has not looked at its streams: its listener did not answer within a millisecond.
var errBusy = errors.New("the server was busy")

// writeFailed reports whether a server says that it could not write a stream. What else a running server says ends by
// itself: a stream that is being made is on disk before the server knows it, a replica may be behind.
func writeFailed(e server.HealthzError) bool { return strings.Contains(e.Error, "write error") }

// healthOf returns what a server says of its streams, as far as it counts, or [errBusy].
func healthOf(s *server.Server, account string, counts func(server.HealthzError) bool) error {
	var errs []error
	for _, e := range s.Healthz(&server.HealthzOptions{Account: account, Details: true}).Errors {
		switch {
		case e.Type == server.HealthzErrorConn:
			return errBusy
		case counts(e):
			errs = append(errs, errors.New(e.Error))
		}
	}
	return errors.Join(errs...)
}

// undamaged returns an error that wraps [ErrStoreDamaged] if a server that has just started could
// not read a stream. It is asked before any stream is made: one in place of a damaged one would
// hide the loss.
func undamaged(s *server.Server, account string) error {
	counts := func(e server.HealthzError) bool { return !s.JetStreamIsClustered() || writeFailed(e) }
	err := errBusy
	for look := 0; errors.Is(err, errBusy) && look < busyLooks; look++ {
		err = healthOf(s, account, counts)
	}
	if err != nil {
		return fmt.Errorf("%w: %s: restore it from a copy of the disk, or a backup", ErrStoreDamaged, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return nil
}
