package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// stopTimeout is how long Run waits for the server to end; chosen, it ends
// within milliseconds unless the disk hangs.
const stopTimeout = 30 * time.Second

// Start starts the broker and returns when it takes connections and JetStream
// is up with all its streams, or with an error when it cannot, or when ctx is
// done. Recovering a large store takes a few seconds: give it a minute. After an
// error nothing is left running, except that a store which is still being read
// when ctx ends is read to its end first, since nothing can interrupt that. The
// error wraps [ErrStarted], [ErrStoreInUse] or ctx's where that is the cause.
func (b *Broker) Start(ctx context.Context) error {
	b.mu.Lock()
	again := b.started
	b.started = true
	b.mu.Unlock()
	if again {
		return ErrStarted
	}
	if err := b.start(ctx); err != nil {
		return fmt.Errorf("start broker: %w", err)
	}
	return nil
}

// start does the work of Start. Whatever comes of it, stopped is closed in the
// end: by Stop, or here after a failure.
func (b *Broker) start(ctx context.Context) error {
	lock, err := lockDir(b.cfg.StoreDir)
	if err != nil {
		close(b.stopped)
		return err
	}
	// The gate's work for the server ends with the broker, not with the start.
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var s *server.Server
	up := make(chan error, 1)
	go func() {
		var err error
		s, err = b.bringUp(life)
		up <- err
	}()
	select {
	case err = <-up:
	case <-ctx.Done():
		go func() {
			defer close(b.stopped)
			cancel()
			if <-up == nil { // Shutdown must not overtake Start
				shutdown(s)
			}
			unlock(lock)
		}()
		return fmt.Errorf("nats server is not ready: %w", context.Cause(ctx))
	}
	if err != nil {
		defer close(b.stopped)
		cancel()
		unlock(lock)
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lock, b.server, b.cancel = lock, s, cancel
	return nil
}

// bringUp starts a server and returns it when it is of use. After an error nothing is
// left of it.
func (b *Broker) bringUp(life context.Context) (*server.Server, error) {
	if err := forgetIndexes(b.cfg.StoreDir); err != nil {
		return nil, err
	}
	s, err := b.newServer(life)
	if err != nil {
		return nil, err
	}
	s.Start()
	if err := b.ready(s); err != nil {
		shutdown(s)
		return nil, err
	}
	return s, nil
}

// ready reports why s, whose Start has returned, is of no use. The server tells
// its logger alone what went wrong, and looks as if it ran.
func (b *Broker) ready(s *server.Server) error {
	if err := b.log.startFailure(); err != nil {
		return fmt.Errorf("nats server: %w", err)
	}
	if !s.JetStreamEnabled() {
		return errors.New("nats server: JetStream did not start")
	}
	if !s.ReadyForConnections(time.Second) {
		return fmt.Errorf("nats server: not listening on %q", b.cfg.Listen)
	}
	return undamaged(s, AccountMuster)
}

// shutdown ends s, which must not be starting.
func shutdown(s *server.Server) {
	s.Shutdown()
	s.WaitForShutdown()
}

// Run starts the broker, waits until ctx is done and stops it. It returns nil
// after that, or why the broker did not start or stop, or what [Broker.Watch] has returned.
func (b *Broker) Run(ctx context.Context) error {
	if err := b.Start(ctx); err != nil {
		return err
	}
	if err := b.Watch(ctx, func(error) {}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	return b.Stop(ctx)
}

// Stop stops the broker: it takes no more connections, ends those it has, closes
// the store and waits until everything has ended. Drain your own connections
// first: what is on its way is lost. If ctx is done earlier, it returns ctx's
// error, and the rest goes on by itself. Stopping twice, or what never ran, is
// no error. Do not stop while Start is at work: end its ctx.
func (b *Broker) Stop(ctx context.Context) error {
	b.mu.Lock()
	started, s, cancel, lock := b.started, b.server, b.cancel, b.lock
	b.server, b.lock = nil, nil
	b.mu.Unlock()
	if !started {
		return nil
	}
	if lock != nil {
		go func() {
			defer close(b.stopped)
			cancel()
			well := storeFailed(s, AccountMuster, lock) == nil
			shutdown(s)
			if well {
				keepIndexes(b.cfg.StoreDir)
			}
			unlock(lock)
		}()
	}
	select {
	case <-b.stopped:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop broker: %w", context.Cause(ctx))
	}
}
