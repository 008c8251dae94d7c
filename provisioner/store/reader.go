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
	// The broker sends a heartbeat every pullHeartbeat and gets a new pull request every pullExpiry. nats.go notices a
	// dead broker or a lost request after two missing heartbeats.
	pullHeartbeat = 2 * time.Second
	pullExpiry    = 10 * time.Second

	// nextTimeout is how long a pending message may take before the broker is asked again. nats.go counts heartbeats
	// only while a caller waits.
	nextTimeout = 5 * time.Second

	// maxStalls is how often in a row the broker may claim pending messages while none comes.
	maxStalls = 2
)

// errStalled means that pending messages of a stream do not come.
var errStalled = errors.New("nothing comes of what is ahead")

// A streamReader reads a stream once, through a consumer of its own. It is not safe for concurrent use. Close it.
type streamReader struct {
	c            *client
	stream       string
	consumer     jetstream.Consumer
	messages     jetstream.MessagesContext
	pending      uint64 // as the broker last said
	consumerName string // of the last message; nats.go makes new consumers
	consumerSeq  uint64 // sequence of the last message in that consumer
}

// openReader begins to read what a consumer with cfg gets.
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

func (l *streamReader) close(ctx context.Context) {
	l.messages.Stop()
	l.c.deleteConsumer(ctx, l.stream, l.consumer)
}

// next returns the next message. While messages are pending, it returns nil if they were deleted meanwhile, and
// [errStalled] if none comes. Otherwise it waits until one is written or ctx is done.
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
		case err != nil: // nats.go notices a broker that does not answer
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

// stillPending reports whether a message is still pending or on its way.
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
