package broker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"muster/internal/span"
)

var (
	// ErrStoreFailed means that a write failed or the directory was replaced. nats-server then shows data that is
	// not on disk: exit without [Broker.Stop].
	ErrStoreFailed = errors.New("the store has failed")

	// ErrStoreDamaged means an unreadable stream. Restarting does not help.
	ErrStoreDamaged = errors.New("the store is damaged")
)

const (
	healthEvery = time.Second

	// slowAfter is longer than a write locks a stream.
	slowAfter = 5 * time.Second

	// maxBusyChecks of a millisecond each make five seconds.
	maxBusyChecks = 5000
)

// Watch returns [ErrStoreFailed] after two failed checks, and nil when ctx is done. It calls slow with an error while
// a check hangs, then with nil; slow must not block.
func (b *Broker) Watch(ctx context.Context, slow func(error)) error {
	return watchHealth(ctx, func() error {
		r, err := b.running()
		if err != nil {
			return nil //nolint:nilerr // the broker is stopping
		}
		return r.failed()
	}, slow)
}

func watchHealth(ctx context.Context, health func() error, slow func(error)) error {
	for failed := false; ; {
		err := checkHealth(ctx, health, slow)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && failed:
			return fmt.Errorf("%w: %w", ErrStoreFailed, err)
		}
		if failed = err != nil; !span.Sleep(ctx, healthEvery) {
			return nil
		}
	}
}

func checkHealth(ctx context.Context, health func() error, slow func(error)) error {
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

var errBusy = errors.New("the server was busy")

// isWriteError selects lasting errors. Errors of a new stream, or of a replica that is behind, end by themselves.
func isWriteError(e server.HealthzError) bool { return strings.Contains(e.Error, "write error") }

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

// checkDamage returns [ErrStoreDamaged] if a stream is unreadable. Call it before creating a stream, which would
// hide the loss.
func checkDamage(s *server.Server, account string) error {
	counts := func(e server.HealthzError) bool { return !s.JetStreamIsClustered() || isWriteError(e) }
	err := errBusy
	for look := 0; errors.Is(err, errBusy) && look < maxBusyChecks; look++ {
		err = healthOf(s, account, counts)
	}
	if err != nil {
		return fmt.Errorf("%w: %s: bring back a copy of the disk, restore a backup into an empty store, "+
			"or move the stream's directory away and go on with the loss: muster recovery begin --accept-loss",
			ErrStoreDamaged, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return nil
}

// Usage is how full JetStream's store is. At Limit, JetStream refuses all writes.
type Usage struct {
	Stored int64 // bytes of all streams

	// Promised is how many bytes streams with a limit may still add.
	Promised int64

	Limit int64
}

// Usage may return [ErrNotRunning].
func (b *Broker) Usage() (Usage, error) {
	s, err := b.running()
	if err != nil {
		return Usage{}, err
	}
	info, err := s.Jsz(&server.JSzOptions{Streams: true, Config: true})
	if err != nil {
		return Usage{}, fmt.Errorf("usage of the store: %w", err)
	}
	u := Usage{Stored: int64(info.Store), Limit: info.Config.MaxStore}
	for _, account := range info.AccountDetails {
		for _, stream := range account.Streams {
			if stream.Config != nil && stream.Config.MaxBytes > 0 {
				u.Promised += max(0, stream.Config.MaxBytes-int64(stream.State.Bytes))
			}
		}
	}
	return u, nil
}
