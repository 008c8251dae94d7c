package store

import (
	"context"
	"time"

	"muster/provisioner/trust"

	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/wire"
)

// Single makes every write go alone, as a benchmark's other side.
func (s *Store) Single() { s.gather = nil }

// Patient makes writes wait for all that are in hand, however long it takes them.
func (s *Store) Patient() { s.gather.wait = time.Hour }

// Unacknowledged is how many writes by themselves are under way.
func (s *Store) Unacknowledged() int { return s.js.PublishAsyncPending() }

// FollowHastily is FollowRecords of a reader each of whose waits ends in the moment
// in which a record comes, until all there were have come.
func (s *Store) FollowHastily(ctx context.Context, each func(wire.Identity)) error {
	whole := false
	f := &recordFollower{s: s, queue: s.handovers.open(), current: func() { whole = true }, each: func(id wire.Identity, _ []byte, _ trust.Revision) { each(id) }}
	defer s.handovers.close(f.queue)
	state, err := f.last(ctx)
	if f.known = state.LastSeq; err != nil {
		return err
	}
	if err := f.start(ctx); err != nil {
		return err
	}
	defer f.stop(ctx)
	for !whole && ctx.Err() == nil {
		wait, end := context.WithCancel(ctx)
		f.reading.messages = &ending{f.reading.messages, end}
		if err := f.read(wait); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// ending calls end when a message has come.
type ending struct {
	jetstream.MessagesContext
	end func()
}

func (e *ending) Next(opts ...jetstream.NextOpt) (jetstream.Msg, error) {
	m, err := e.MessagesContext.Next(opts...)
	if err == nil {
		e.end()
	}
	return m, err
}
