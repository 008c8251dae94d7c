package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
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
	l := b.launch(ctx)
	end := func() {
		defer close(b.stopped)
		l.abandon()
		unlock(lock)
	}
	if err := l.wait(ctx); err != nil {
		go end()
		return err
	}
	if l.err != nil {
		end()
		return l.err
	}
	b.mu.Lock()
	b.lock = lock
	b.mu.Unlock()
	b.take(l)
	return nil
}

// take has the broker run the server of a launch that is over and went well.
func (b *Broker) take(l *launch) {
	if addr, ok := l.server.Addr().(*net.TCPAddr); ok {
		b.port = addr.Port // a port that was any is this one from now on
	}
	if u, err := url.Parse(l.server.WebsocketURL()); err == nil && b.cfg.WebSocket.Listen != "" {
		b.webPort, _ = strconv.Atoi(u.Port()) // likewise
	}
	b.mu.Lock()
	b.server, b.cancel = l.server, l.cancel
	b.mu.Unlock()
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
	return nil
}

// shutdown ends s, which must not be starting.
func shutdown(s *server.Server) {
	s.Shutdown()
	s.WaitForShutdown()
}

// Run starts the broker, waits until ctx is done and stops it. It returns nil
// after that, or why the broker did not start or stop.
func (b *Broker) Run(ctx context.Context) error {
	if err := b.Start(ctx); err != nil {
		return err
	}
	<-ctx.Done()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	return b.Stop(ctx)
}

// Stop stops the broker: it takes no more connections, ends those it has, closes
// the store and waits until everything has ended. Drain your own connections
// first: what is on its way is lost. If ctx is done earlier, it returns ctx's
// error, and the rest goes on by itself. Stopping twice, or what never ran, is
// no error. Do not stop while Start or
// Restart is at work: end its ctx.
func (b *Broker) Stop(ctx context.Context) error {
	b.mu.Lock()
	started, s, cancel, lock, gone, l := b.started, b.server, b.cancel, b.lock, b.gone, b.launched
	b.server, b.lock = nil, nil
	b.mu.Unlock()
	if !started {
		return nil
	}
	if lock != nil {
		go func() {
			defer close(b.stopped)
			if s != nil {
				cancel()
				shutdown(s)
				if !b.log.trouble.Load() {
					keepIndexes(b.cfg.StoreDir)
				}
			}
			if gone != nil {
				<-gone // a server that a restart has ended
			}
			if l != nil {
				l.abandon() // one that a restart has begun to start
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
