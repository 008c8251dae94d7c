package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/span"
)

// A cluster without a leader neither answers nor keeps requests, so queries are repeated. A write without an
// acknowledgement is reported as unknown early enough to look for it.

// attemptTimeout is below the 4 to 9 s that a cluster has no leader after its leader was killed (measured).
const attemptTimeout = 3 * time.Second

// JSClusterNotAvailErr of nats-server; nats.go does not name it.
const errCodeNoLeader jetstream.ErrorCode = 10008

const retryPause = 100 * time.Millisecond

func (c *client) clustered() bool { return c.replicas > 1 }

// Repeating query must be harmless.
func retryIfClustered[T any](ctx context.Context, c *client, query func(context.Context) (T, error)) (T, error) {
	if !c.clustered() {
		return query(ctx)
	}
	return retryUntilDone(ctx, query)
}

func retryUntilDone[T any](ctx context.Context, query func(context.Context) (T, error)) (T, error) {
	for {
		attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
		result, err := query(attempt)
		cancel()
		if err == nil || ctx.Err() != nil || !isUnavailable(err) {
			return result, err
		}
		span.Sleep(ctx, retryPause) // a server without a leader refuses at once
	}
}

func (c *client) info(ctx context.Context, stream string, options ...jetstream.StreamInfoOpt,
) (*jetstream.StreamInfo, error) {
	return retryIfClustered(ctx, c, func(ctx context.Context) (*jetstream.StreamInfo, error) {
		return c.handles[stream].Info(ctx, options...)
	})
}

func isUnavailable(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) || isCode(err, errCodeNoLeader)
}

func (c *client) withAckTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.clustered() {
		return context.WithTimeout(ctx, attemptTimeout)
	}
	return context.WithCancel(ctx)
}

// maxConsumerResets bounds how often nats.go creates a lost consumer again. By default it never stops and ignores
// contexts. Four attempts take 7 to 47 s.
const maxConsumerResets = 4

// consumerIdleLimit is how long the broker keeps the consumer of a killed process.
const consumerIdleLimit = 10 * time.Second

func (c *client) orderedConsumer(ctx context.Context, stream string, cfg jetstream.OrderedConsumerConfig,
) (jetstream.Consumer, error) {
	cfg.MaxResetAttempts, cfg.InactiveThreshold = maxConsumerResets, consumerIdleLimit
	return retryIfClustered(ctx, c,
		func(ctx context.Context) (jetstream.Consumer, error) { return c.js.OrderedConsumer(ctx, stream, cfg) })
}

func (c *client) wantedReplicas(ctx context.Context) (int, error) {
	replicas := c.replicas
	for _, want := range streams(replicas, 0, 0) {
		stream, err := retryIfClustered(ctx, c,
			func(ctx context.Context) (jetstream.Stream, error) { return c.js.Stream(ctx, want.Name) })
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("stream %s: %w", want.Name, err)
		}
		replicas = max(replicas, stream.CachedInfo().Config.Replicas)
	}
	return replicas, nil
}
