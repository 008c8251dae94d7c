package store

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// How long a look waits for what the broker said it has, before it asks what has become
// of that. All chosen.
const (
	// lookFirst is for the first message: a message takes a millisecond, and a cluster
	// loses the first request of 11 looks in 1,500 (measured), each of which costs
	// this much.
	lookFirst = 200 * time.Millisecond

	// lookNext is for those that follow.
	lookNext = time.Second

	// lookAgain is once it has asked and more is to come: the library misses a server
	// that hangs after 30 s, and only while it is let wait that long.
	lookAgain = 45 * time.Second
)

// A look reads a stream once, by a consumer of its own. Not safe for concurrent use.
// Whoever made one must close it.
type look struct {
	s        *Store
	stream   string
	cfg      jetstream.OrderedConsumerConfig
	ask      []jetstream.PullMessagesOpt
	consumer jetstream.Consumer
	messages jetstream.MessagesContext // nil until the first next
	known    bool                      // the broker knows that messages are waited for
	pending  uint64                    // messages ahead of it, as the broker last said
	last     uint64                    // the consumer's number of the message that came last, 0 for none
}

// look begins to read what a consumer of that configuration gets.
func (s *Store) look(ctx context.Context, stream string, cfg jetstream.OrderedConsumerConfig, ask ...jetstream.PullMessagesOpt) (*look, error) {
	l := &look{s: s, stream: stream, cfg: cfg, ask: ask}
	return l, l.open(ctx)
}

// open makes the consumer.
func (l *look) open(ctx context.Context) error {
	consumer, err := l.s.ordered(ctx, l.stream, l.cfg)
	if err != nil {
		return err
	}
	l.consumer, l.pending = consumer, consumer.CachedInfo().NumPending
	return nil
}

// close ends it, and drops the consumer.
func (l *look) close(ctx context.Context) {
	if l.messages != nil {
		l.messages.Stop()
		l.messages = nil
	}
	if l.consumer != nil {
		l.s.drop(ctx, l.stream, l.consumer)
		l.consumer = nil
	}
}

// next returns the next message. While some are ahead, it returns nil if they turn out to
// have been removed; else it waits until one is written or ctx is done.
func (l *look) next(ctx context.Context) (jetstream.Msg, *jetstream.MsgMetadata, error) {
	patience, first := lookNext, lookFirst
	if l.last == 0 {
		patience = first
	}
	for {
		if l.messages == nil {
			messages, err := l.consumer.Messages(l.ask...)
			if err != nil {
				return nil, nil, err
			}
			l.messages = messages
		}
		wait, cancel := ctx, context.CancelFunc(func() {})
		if l.pending > 0 || !l.known {
			wait, cancel = context.WithTimeout(ctx, patience)
		}
		m, err := l.messages.Next(jetstream.NextContext(wait))
		cancel()
		switch {
		case err == nil:
			meta, err := m.Metadata()
			if err != nil {
				return nil, nil, err
			}
			l.pending, l.last, l.known = meta.NumPending, meta.Sequence.Consumer, true
			return m, meta, nil
		case ctx.Err() != nil:
			return nil, nil, ctx.Err()
		case !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, nats.ErrTimeout):
			return nil, nil, err
		}
		were := l.pending
		switch l.become(ctx) {
		case unasked:
			// Reading begins anew, with more patience each time.
			l.close(ctx)
			if err := l.open(ctx); err != nil {
				return nil, nil, err
			}
			first *= 2
			patience = first
		case removed:
			l.pending, l.known = 0, true
		case late:
			l.known = true
			patience = lookAgain
		}
		if were > 0 && l.pending == 0 {
			return nil, nil, nil
		}
	}
}

// What has become of messages that do not come.
type become int

const (
	late    become = iota // on their way, or the library will say what is wrong
	removed               // not there any more, or none is ahead
	unasked               // the broker does not know that anybody waits for them
)

// become asks what has become of what was to come.
func (l *look) become(ctx context.Context) become {
	ctx, cancel := context.WithTimeout(ctx, l.s.timeout)
	defer cancel()
	info, err := l.consumer.Info(ctx)
	switch {
	case l.last == 0 && (errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound)):
		return unasked // gone before it was asked for anything; whoever makes another is told why
	case err != nil:
		return late // the library will notice as well that nobody answers
	case l.last == 0 && info.Delivered.Consumer == 0 && info.NumWaiting == 0:
		// In a cluster the first request may come to a server that has not yet heard where
		// the new consumer is. The library does not ask again before 30 s.
		return unasked
	case info.NumPending == 0 && (info.Delivered.Consumer == 0 || info.Delivered.Consumer == l.last):
		return removed
	}
	return late // what was sent and has not come is lost, and comes from the library's next consumer
}
