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
	// nats.go notices a dead broker after two missing heartbeats.
	pullHeartbeat = 2 * time.Second
	pullExpiry    = 10 * time.Second

	// After nextTimeout the broker is asked whether messages are pending.
	nextTimeout = 5 * time.Second

	maxStalls = 2
)

var errStalled = errors.New("pending messages do not arrive")

// A streamReader reads a stream once. It is not safe for concurrent use. Close it.
type streamReader struct {
	c            *client
	stream       string
	consumer     jetstream.Consumer
	messages     jetstream.MessagesContext
	pending      uint64 // by the broker's last answer
	consumerName string // of the last message; nats.go may create new consumers
	consumerSeq  uint64 // of the last message in that consumer
}

func (c *client) openReader(ctx context.Context, stream string, cfg jetstream.OrderedConsumerConfig,
	options ...jetstream.PullMessagesOpt,
) (*streamReader, error) {
	consumer, err := c.orderedConsumer(ctx, stream, cfg)
	if err != nil {
		return nil, err
	}
	l := &streamReader{
		c:        c,
		stream:   stream,
		consumer: consumer,
		pending:  consumer.CachedInfo().NumPending,
	}
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

// next returns the next message, nil if the pending ones were deleted, or [errStalled].
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
		case err != nil: // nats.go notices that
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
