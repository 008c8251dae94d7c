package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A cluster without a leader answers nothing, and does not answer later what was
// asked meanwhile. So a cluster is asked again, and a write that was not
// acknowledged is reported as one whose outcome is unknown while there is time to
// look for it.

// askAgain is how long a cluster may take to answer; chosen, below the 4 to 9 s
// for which it has no leader when one was killed (measured), and far above the
// milliseconds that an answer takes.
const attemptTimeout = 3 * time.Second

// noLeader is JSClusterNotAvailErr of nats-server, "JetStream system temporarily
// unavailable", which nats.go has no name for.
const errCodeNoLeader jetstream.ErrorCode = 10008

// leaderless is how long to wait before a cluster that has no leader is asked
// again; chosen, a tenth of a second is nothing beside an election.
const retryPause = 100 * time.Millisecond

// cluster reports whether the streams are on more than one server.
func (c *client) clustered() bool { return c.replicas > 1 }

// ask asks once, or until there is an answer or ctx is done if the streams are a cluster's. To ask again must be harmless.
func retryIfClustered[T any](ctx context.Context, c *client, query func(context.Context) (T, error)) (T, error) {
	if !c.clustered() {
		return query(ctx)
	}
	return retryUntilDone(ctx, query)
}

// insist asks until there is an answer or ctx is done. Each question has [askAgain].
func retryUntilDone[T any](ctx context.Context, query func(context.Context) (T, error)) (T, error) {
	for {
		attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
		result, err := query(attempt)
		cancel()
		if err == nil || ctx.Err() != nil || !isUnavailable(err) {
			return result, err
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryPause): // it may have said at once that it has no leader
		}
	}
}

// info asks the leader of the stream how it is.
func (c *client) info(ctx context.Context, stream string, options ...jetstream.StreamInfoOpt) (*jetstream.StreamInfo, error) {
	return retryIfClustered(ctx, c, func(ctx context.Context) (*jetstream.StreamInfo, error) {
		return c.handles[stream].Info(ctx, options...)
	})
}

// unanswered tells no answer, or that there is nobody to answer just now, from one
// that is an error.
func isUnavailable(err error) bool {
	var api *jetstream.APIError
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) ||
		errors.As(err, &api) && api.ErrorCode == errCodeNoLeader
}

// acknowledged bounds the wait for the acknowledgement of one write.
func (c *client) withAckTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.clustered() {
		return context.WithTimeout(ctx, attemptTimeout)
	}
	return context.WithCancel(ctx)
}

// resets is how often the library asks for an ordered consumer again that is gone. By
// itself it never stops, and does not look at anybody's context meanwhile. Chosen: four
// times take 7 s where the answer is that there is none, as long as an election takes, and
// 47 s where there is no answer.
const maxConsumerResets = 4

// forsaken is how long the broker keeps a consumer that nobody asks for anything: whoever
// goes before it is made does not drop it. Chosen, far above the milliseconds that a look
// takes to begin; a reader that stands still for longer is given another.
const consumerIdleLimit = 10 * time.Second

// ordered makes a consumer for one look through a stream.
func (c *client) orderedConsumer(ctx context.Context, stream string, cfg jetstream.OrderedConsumerConfig) (jetstream.Consumer, error) {
	cfg.MaxResetAttempts, cfg.InactiveThreshold = maxConsumerResets, consumerIdleLimit
	return retryIfClustered(ctx, c, func(ctx context.Context) (jetstream.Consumer, error) { return c.js.OrderedConsumer(ctx, stream, cfg) })
}

// atLeast returns how many replicas the streams are to have: as many as are
// asked for, or as any of them has.
func (c *client) wantedReplicas(ctx context.Context) (int, error) {
	replicas := c.replicas
	for _, want := range streams(replicas, 0, 0) {
		stream, err := retryIfClustered(ctx, c, func(ctx context.Context) (jetstream.Stream, error) { return c.js.Stream(ctx, want.Name) })
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
