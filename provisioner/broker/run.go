package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Start starts the broker and returns when it takes connections and JetStream
// is up with all its streams, or with an error when it cannot. Recovering a large
// store takes a few seconds, which nothing can interrupt: if ctx is done meanwhile, the
// error wraps ctx's after that. After an error nothing is left running. The error
// wraps [ErrStoreInUse] or [ErrStoreDamaged] where that is the cause.
func (b *Broker) Start(ctx context.Context) error {
	if err := b.start(ctx); err != nil {
		return fmt.Errorf("start broker: %w", err)
	}
	return nil
}

func (b *Broker) start(ctx context.Context) error {
	lock, err := lockDir(b.cfg.StoreDir)
	if err != nil {
		return err
	}
	// The gate's work for the server ends with the broker, not with the start.
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s, err := b.bringUp(life)
	if err == nil && ctx.Err() != nil {
		shutdown(s)
		err = context.Cause(ctx)
	}
	if err != nil {
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

// Stop stops the broker: it takes no more connections, ends those it has, closes
// the store and waits until everything has ended. Drain your own connections
// first: what is on its way is lost. If ctx is done earlier, it returns ctx's
// error, and the rest goes on by itself. Stopping twice, or what never ran, is
// no error. Do not stop while Start is at work.
func (b *Broker) Stop(ctx context.Context) error {
	b.mu.Lock()
	s, cancel, lock := b.server, b.cancel, b.lock
	b.server, b.lock = nil, nil
	b.mu.Unlock()
	if s == nil {
		return nil
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		cancel()
		well := storeFailed(s, AccountMuster, lock) == nil
		shutdown(s)
		if well {
			keepIndexes(b.cfg.StoreDir)
		}
		unlock(lock)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop broker: %w", context.Cause(ctx))
	}
}
