package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"muster/provisioner/trust"
)

// maxPending bounds writes that are sent and not yet acknowledged. It is above
// the number of requests that the edge works on at once, so that nobody waits
// here.
const maxPending = 4096

// A client asks the streams of a store, and writes to them. All parts of a store share one.
type client struct {
	js           jetstream.JetStream
	nc           *nats.Conn
	infos        *infoCache
	handles      map[string]jetstream.Stream // by the stream's name; read-only once the store is open
	installation Installation                // read-only once the store is open
	replicas     int
	timeout      time.Duration
	log          *slog.Logger

	room atomic.Int64 // bytes that are not held back for revocations; see [Store.SetRoom]
}

// connect returns a client of the streams, once JetStream answers.
func connect(ctx context.Context, cfg Config, options ...jetstream.JetStreamOpt) (*client, error) {
	options = append(options, jetstream.WithPublishAsyncMaxPending(maxPending), jetstream.WithDefaultTimeout(cfg.Timeout))
	js, err := jetstream.New(cfg.Conn, options...)
	if err == nil {
		_, err = retryUntilDone(ctx, js.AccountInfo)
	}
	return newClient(js, cfg), err
}

// newClient returns a client that has no handles of streams yet.
func newClient(js jetstream.JetStream, cfg Config) *client {
	c := &client{
		js:       js,
		nc:       cfg.Conn,
		infos:    newInfoCache(js),
		handles:  make(map[string]jetstream.Stream),
		replicas: cfg.Replicas,
		timeout:  cfg.Timeout,
		log:      cfg.Log,
	}
	c.room.Store(math.MaxInt64)
	return c
}

// last returns the newest message of a subject, decoded, and its sequence; nil and 0 if there is none. What cannot be decoded
// is [trust.ErrRecord], with its sequence.
func getLast[T any](ctx context.Context, c *client, stream, subject string) (*T, trust.Revision, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	m, err := retryIfClustered(ctx, c, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
		return c.handles[stream].GetLastMsgForSubject(ctx, subject)
	})
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	v := new(T)
	err = json.Unmarshal(m.Data, v)
	if is, ok := any(v).(checker); ok && err == nil {
		err = is.Check()
	}
	if err != nil {
		return nil, trust.Revision(m.Sequence), fmt.Errorf("%w: sequence %d: %w", trust.ErrRecord, m.Sequence, err)
	}
	return v, trust.Revision(m.Sequence), nil
}

// put writes one message if the subject's last sequence is still after. It
// returns [trust.ErrConflict] if it is not; after any other error the
// message may be stored or may yet be, but for [trust.ErrStoreFull].
func (c *client) put(ctx context.Context, subject string, v any, after uint64) (uint64, error) {
	b, err := json.Marshal(v)
	if err == nil {
		err = c.useRoom(subject, b)
	}
	if err != nil {
		return 0, err
	}
	return c.publish(ctx, subject, b, after)
}

// putAnyway is put for what may take up the room that is held back: what keeps
// somebody out, and what is bounded and small.
func (c *client) putReserved(ctx context.Context, subject string, v any, after uint64) (uint64, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return 0, err
	}
	return c.publish(ctx, subject, b, after)
}

// publish makes one write by itself, which may take as long as this store waits for an acknowledgement.
func (c *client) publish(ctx context.Context, subject string, b []byte, after uint64) (uint64, error) {
	ctx, cancel := c.withAckTimeout(ctx)
	defer cancel()
	return publish(ctx, c.js, subject, b, after)
}

// errAway is said of a write that was not sent: nats.go would keep it until the
// connection is back, hours later perhaps, when the attempt has been given up and an
// operator may have given its claim to another. A connection that is lost right behind
// the look at it keeps one that was sent in that microsecond.
var errDisconnected = errors.New("no connection to the broker, nothing was sent")

// publish makes one write by itself.
func publish(ctx context.Context, js jetstream.JetStream, subject string, b []byte, after uint64) (uint64, error) {
	if after == uint64(trust.AnyRevision) {
		return publishIf(ctx, js, subject, b)
	}
	return publishIf(ctx, js, subject, b, jetstream.WithExpectLastSequencePerSubject(after))
}

// publishIf makes one write by itself under conditions.
func publishIf(ctx context.Context, js jetstream.JetStream, subject string, b []byte, conditions ...jetstream.PublishOpt) (uint64, error) {
	if !js.Conn().IsConnected() {
		return 0, errDisconnected
	}
	// Asynchronous: the broker has many writes in hand at once, each of which
	// waits for its own acknowledgement here.
	f, err := js.PublishMsgAsync(&nats.Msg{Subject: subject, Data: b}, append(conditions, jetstream.WithRetryAttempts(0))...)
	if err != nil {
		return 0, err
	}
	select {
	case ack := <-f.Ok():
		return ack.Sequence, nil
	case err := <-f.Err():
		if isConflict(err) {
			return 0, fmt.Errorf("%w (%w)", trust.ErrConflict, err)
		}
		return 0, wrapFull(err)
	case <-ctx.Done():
		return 0, fmt.Errorf("no acknowledgement: %w", ctx.Err())
	}
}

// conflict reports whether a write was refused since another one came before it.
func isConflict(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}
