package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// lookBeat is how often the broker says that it is still there, and lookExpiry how often it is asked for more. The
	// library misses a broker that is gone, and a request that was lost on its way, after two beats.
	pullHeartbeat = 2 * time.Second
	pullExpiry    = 10 * time.Second

	// lookNext is how long a message that is ahead may take before the broker is asked what has become of it. The library
	// counts beats while it is waited for only.
	nextTimeout = 5 * time.Second

	// lookStalled is how many times in a row the broker may say that some are ahead while nothing comes.
	maxStalls = 2
)

// errStalled means that nothing comes of what a stream is said to have.
var errStalled = errors.New("nothing comes of what is ahead")

// A look reads a stream once, by a consumer of its own. It is not safe for concurrent use. Close it.
type streamReader struct {
	c            *client
	stream       string
	consumer     jetstream.Consumer
	messages     jetstream.MessagesContext
	pending      uint64 // messages ahead of it, as the broker last said
	consumerName string // the consumer of the last message; the library makes new ones
	consumerSeq  uint64 // that one's number of it
}

// look begins to read what a consumer of that configuration gets.
func (c *client) openReader(ctx context.Context, stream string, cfg jetstream.OrderedConsumerConfig, options ...jetstream.PullMessagesOpt) (*streamReader, error) {
	consumer, err := c.orderedConsumer(ctx, stream, cfg)
	if err != nil {
		return nil, err
	}
	l := &streamReader{c: c, stream: stream, consumer: consumer, pending: consumer.CachedInfo().NumPending}
	options = append(options, jetstream.PullExpiry(pullExpiry), jetstream.PullHeartbeat(pullHeartbeat))
	if l.messages, err = consumer.Messages(options...); err != nil {
		c.deleteConsumer(ctx, stream, consumer)
		return nil, err
	}
	return l, nil
}

// close ends it, and drops the consumer.
func (l *streamReader) close(ctx context.Context) {
	l.messages.Stop()
	l.c.deleteConsumer(ctx, l.stream, l.consumer)
}

// next returns the next message. While some are ahead, it returns nil if they turn out to have been removed, and
// [errStalled] if nothing comes; else it waits until one is written or ctx is done.
func (l *streamReader) next(ctx context.Context) (jetstream.Msg, *jetstream.MsgMetadata, error) {
	for silent := 0; ; {
		wait, cancel := ctx, context.CancelFunc(func() {})
		if l.pending > 0 {
			wait, cancel = context.WithTimeout(ctx, nextTimeout)
		}
		m, err := l.messages.Next(jetstream.NextContext(wait))
		cancel()
		switch {
		case err == nil:
			meta, err := m.Metadata()
			if err != nil {
				return nil, nil, err
			}
			l.pending, l.consumerName, l.consumerSeq = meta.NumPending, meta.Consumer, meta.Sequence.Consumer
			return m, meta, nil
		case ctx.Err() != nil:
			return nil, nil, ctx.Err()
		case !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, nats.ErrTimeout):
			return nil, nil, err
		}
		switch ahead, err := l.stillPending(ctx); {
		case err != nil: // it is for the library to notice that nothing answers
		case !ahead:
			l.pending = 0
			return nil, nil, nil
		default:
			if silent++; silent == maxStalls {
				return nil, nil, fmt.Errorf("%w: %d messages of stream %s", errStalled, l.pending, l.stream)
			}
		}
	}
}

// ahead asks whether anything is still ahead, or on its way.
func (l *streamReader) stillPending(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, l.c.timeout)
	defer cancel()
	info, err := l.consumer.Info(ctx)
	if err != nil {
		return false, err
	}
	last := l.consumerSeq
	if info.Name != l.consumerName {
		last = 0
	}
	return info.NumPending > 0 || info.Delivered.Consumer > last, nil
}
