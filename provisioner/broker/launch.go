package broker

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// launchTimeout is how long a launch may take until it counts as one that hangs. Chosen: a
// store of 3 GB on a disk that reads 20 MB/s takes a quarter of it, and the end of the
// process, which is what a hanging one needs, has a slow one begin anew.
const launchTimeout = 10 * time.Minute

// A launch is a server on its way. Most of that is the store, which is read to its end
// before the server is of use; nothing can interrupt it, and no time is known that is
// enough. So a launch goes on until it is over, whoever waits for it.
type launch struct {
	begun  time.Time
	life   context.Context // of the gate's work for the server: it ends with the broker, not with the start
	cancel context.CancelFunc

	done   chan struct{}  // closed when the rest is known
	server *server.Server // of use; nil after an error
	err    error
}

// launch begins one. There is one at a time.
func (b *Broker) launch(ctx context.Context) *launch {
	l := &launch{begun: time.Now(), done: make(chan struct{})}
	l.life, l.cancel = context.WithCancel(context.WithoutCancel(ctx))
	b.log.starting()
	go func() {
		defer close(l.done)
		if l.server, l.err = b.bringUp(l); l.err != nil {
			l.cancel()
		}
	}()
	return l
}

// bringUp starts a server and returns it when it is of use. After an error nothing is
// left of it.
func (b *Broker) bringUp(l *launch) (*server.Server, error) {
	if err := forgetIndexes(b.cfg.StoreDir); err != nil {
		return nil, err
	}
	s, err := b.newServer(l.life)
	if err != nil {
		return nil, err
	}
	s.Start()
	if err := b.ready(s); err != nil {
		l.cancel()
		shutdown(s)
		return nil, err
	}
	return s, nil
}

// wait waits until the launch is over. If ctx is done earlier, it returns ctx's error, and
// the launch goes on; one that hangs is told by [ErrHangs].
func (l *launch) wait(ctx context.Context) error {
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
	}
	if time.Since(l.begun) >= launchTimeout {
		return fmt.Errorf("%w: not ready after %v: %w", ErrHangs, launchTimeout, context.Cause(ctx))
	}
	return fmt.Errorf("nats server is not ready: %w", context.Cause(ctx))
}

// abandon ends the server as soon as it can be. It returns when nothing is left of it.
func (l *launch) abandon() {
	l.cancel()
	<-l.done // Shutdown must not overtake Start
	if l.server != nil {
		shutdown(l.server)
	}
}
