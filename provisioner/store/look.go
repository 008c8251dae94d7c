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

	// lookIdle is how often who has all that there is asks whether that is so: the library
	// misses a server that hangs after 10 s, as with lookAgain.
	lookIdle = 12 * time.Second

	// looksLost is how many times in a row something must be missed until it is lost: it may
	// be on its way, and the server that says how long the stream is may be behind.
	looksLost = 2
)

// errShortened means that a stream does not have any more what a look has read of it: it
// was made anew, or its end was lost with a disk. It gives nothing until it is as long as it
// was.
var errShortened = errors.New("the stream has lost its end")

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
	of       string                    // the consumer of the message that came last; the library makes new ones
	last     uint64                    // that one's number of it, 0 for none since it was opened
	through  uint64                    // the stream's, or where it begins if none has come
	late     int                       // how often in a row something was late
	shorter  int                       // how often in a row the stream was shorter than through
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
	info := consumer.CachedInfo()
	l.consumer, l.pending, l.known, l.late = consumer, info.NumPending, false, 0
	if l.through == 0 {
		l.through = info.Delivered.Stream
	}
	return nil
}

// again begins anew behind what has come.
func (l *look) again(ctx context.Context) error {
	if l.last > 0 {
		l.cfg.DeliverPolicy, l.cfg.OptStartSeq, l.cfg.OptStartTime = jetstream.DeliverByStartSequencePolicy, l.through+1, nil
		l.last = 0
	}
	l.close(ctx)
	return l.open(ctx)
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
// have been removed; else it waits until one is written or ctx is done. The error is
// [errShortened] if the stream does not have any more what has come.
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
		idle, limit := l.pending == 0 && l.known, patience
		switch {
		case idle && l.late+l.shorter > 0:
			limit = lookNext
		case idle:
			limit = lookIdle
		}
		wait, cancel := context.WithTimeout(ctx, limit)
		m, err := l.messages.Next(jetstream.NextContext(wait))
		cancel()
		switch {
		case err == nil:
			meta, err := m.Metadata()
			if err != nil {
				return nil, nil, err
			}
			l.pending, l.known, l.late, l.shorter = meta.NumPending, true, 0, 0
			l.of, l.last, l.through = meta.Consumer, meta.Sequence.Consumer, meta.Sequence.Stream
			return m, meta, nil
		case ctx.Err() != nil:
			return nil, nil, ctx.Err()
		case !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, nats.ErrTimeout):
			return nil, nil, err
		}
		if idle && l.shortened(ctx) {
			return nil, nil, errShortened
		}
		were := l.pending
		became := l.become(ctx)
		if became == late {
			l.late++
		}
		switch {
		case became == unasked || l.late >= looksLost:
			// Reading begins anew, with more patience each time. What is late for so long is
			// lost, and the library does not miss it as long as the server says that it is
			// there: a reader that stood still had no room for it.
			if err := l.again(ctx); err != nil {
				return nil, nil, err
			}
			first *= 2
			patience = first
		case became == removed:
			l.pending, l.known, l.late = 0, true, 0
		case became == late || became == untold:
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
	late    become = iota // on their way, or lost
	removed               // not there any more, or none is ahead
	unasked               // the broker does not know that anybody waits for them
	untold                // nobody says; the library will notice as well
)

// become asks what has become of what was to come.
func (l *look) become(ctx context.Context) become {
	ctx, cancel := context.WithTimeout(ctx, l.s.timeout)
	defer cancel()
	info, err := l.consumer.Info(ctx)
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound) || l.last == 0 && errors.Is(err, jetstream.ErrStreamNotFound):
		return unasked // whoever makes another is told why
	case err != nil:
		return untold
	}
	last := l.last
	if info.Name != l.of {
		last = 0
	}
	switch {
	case last == 0 && info.Delivered.Consumer == 0 && info.NumWaiting == 0:
		// In a cluster the first request may come to a server that has not yet heard where
		// the new consumer is. The library does not ask again before 30 s.
		return unasked
	case info.NumPending == 0 && info.Delivered.Consumer == last:
		return removed
	}
	return late
}

// shortened asks whether the stream is shorter than what has come of it, and reports
// whether it stays so.
func (l *look) shortened(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, l.s.timeout)
	defer cancel()
	switch stream, err := l.s.js.Stream(ctx, l.stream); {
	case err != nil: // the library will notice as well that nobody answers
	case stream.CachedInfo().State.LastSeq < l.through:
		l.shorter++
	default:
		l.shorter = 0
	}
	return l.shorter >= looksLost
}
