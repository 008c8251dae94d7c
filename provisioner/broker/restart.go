package broker

import (
	"context"
	"fmt"
	"net"
)

// Restart ends the server and starts another one in its place, on the same
// port and the same store: the only cure for a JetStream whose disk was full or
// read-only, which stays dead after the disk is mended. Connections of
// [Broker.Connect] come back by themselves with their subscriptions, and so do
// nodes; what was on its way is lost. The store's lock is held all the time.
//
// After an error nothing is of use, and Restart may be called again until it
// succeeds. A server that still reads its store when ctx is done goes on with that, and
// the next call waits for the same one: of a store that takes longer than each of
// them, calls succeed together.
//
// The error is [ErrNotRunning] if the broker was never started or has been stopped,
// and [ErrHangs] if the server before has not ended when ctx is done, or the new one
// has not come up for long. One call at a time, and none beside Start or Stop.
func (b *Broker) Restart(ctx context.Context) error {
	if err := b.restart(ctx); err != nil {
		return fmt.Errorf("restart broker: %w", err)
	}
	return nil
}

// restart does the work of Restart.
func (b *Broker) restart(ctx context.Context) error {
	b.mu.Lock()
	lock, s, cancel := b.lock, b.server, b.cancel
	b.server = nil
	if s != nil {
		gone := make(chan struct{})
		b.gone = gone
		cancel()
		go func() {
			defer close(gone)
			shutdown(s)
		}()
	}
	gone, l := b.gone, b.launched
	b.mu.Unlock()
	if lock == nil {
		return ErrNotRunning
	}
	if gone != nil {
		select {
		case <-gone:
		case <-ctx.Done():
			return fmt.Errorf("%w: not ended: %w", ErrHangs, context.Cause(ctx))
		}
	}
	again := l != nil
	if !again {
		l = b.launch(ctx)
		b.setLaunched(l)
	}
	if err := l.wait(ctx); err != nil {
		return err
	}
	b.setLaunched(nil)
	if l.err != nil {
		return l.err
	}
	b.take(l)
	if again {
		b.log.repeat()
	}
	return nil
}

// setLaunched says which server is on its way, nil for none: the one before has ended.
func (b *Broker) setLaunched(l *launch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.launched, b.gone = l, nil
}

// inProcess connects to whichever server runs at the moment, so that
// connections from inside the process outlive a restart.
type inProcess struct{ b *Broker }

// InProcessConn implements [nats.InProcessConnProvider].
func (p inProcess) InProcessConn() (net.Conn, error) {
	s, err := p.b.running()
	if err != nil {
		return nil, err
	}
	return s.InProcessConn()
}
