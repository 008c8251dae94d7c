package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/span"
	"muster/provisioner/trust"
)

// maxPending is more than the number of requests handled at once.
const maxPending = 4096

type client struct {
	js           jetstream.JetStream
	nc           *nats.Conn
	infos        *infoCache
	handles      map[string]jetstream.Stream // by name; read-only once the store is open
	installation Installation                // read-only once the store is open
	replicas     int
	timeout      time.Duration
	log          *slog.Logger
	losses       losses
	guard        guard

	room atomic.Int64 // see [Store.SetRoom]
}

// connect returns once JetStream answers.
func connect(ctx context.Context, cfg Config, options ...jetstream.JetStreamOpt) (*client, error) {
	options = append(options, jetstream.WithPublishAsyncMaxPending(maxPending),
		jetstream.WithDefaultTimeout(cfg.Timeout))
	js, err := jetstream.New(cfg.Conn, options...)
	if err == nil {
		_, err = retryUntilDone(ctx, js.AccountInfo)
	}
	return newClient(js, cfg), err
}

func newClient(js jetstream.JetStream, cfg Config) *client {
	c := &client{
		js:       js,
		nc:       cfg.Conn,
		infos:    newInfoCache(js),
		handles:  make(map[string]jetstream.Stream),
		replicas: cfg.Replicas,
		timeout:  cfg.Timeout,
		log:      cfg.Log,
		losses:   losses{found: make(map[string]func(context.Context) error)},
	}
	c.room.Store(math.MaxInt64)
	return c
}

// lastMessage returns the newest message of a subject, as the leader has it, or nil.
func (c *client) lastMessage(ctx context.Context, stream, subject string) (*jetstream.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	m, err := retryIfClustered(ctx, c, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
		return c.handles[stream].GetLastMsgForSubject(ctx, subject)
	})
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", subject, err)
	}
	return m, nil
}

// getLast returns the newest message of a subject and its sequence, or nil and 0. For an unreadable message it returns
// [trust.ErrRecord] and the sequence.
func getLast[T any](ctx context.Context, c *client, stream, subject string) (*T, trust.Revision, error) {
	m, err := c.lastMessage(ctx, stream, subject)
	if m == nil {
		return nil, 0, err
	}
	v := new(T)
	err = json.Unmarshal(m.Data, v)
	if checkable, ok := any(v).(checker); ok && err == nil {
		err = checkable.Check()
	}
	if err != nil {
		return nil, trust.Revision(m.Sequence), fmt.Errorf("read %s: %w: sequence %d: %w", subject, trust.ErrRecord,
			m.Sequence, err)
	}
	return v, trust.Revision(m.Sequence), nil
}

// put writes v if after is still the subject's last sequence, else it returns [trust.ErrConflict]. After other errors
// except [trust.ErrStoreFull] the message may be stored now or later.
func (c *client) put(ctx context.Context, subject string, v any, after trust.Revision) (trust.Revision, error) {
	return c.putWithin(ctx, subject, v, after, c.useRoom)
}

// putReserved may use the reserved space. It is for orders that take access away, and for small writes.
func (c *client) putReserved(ctx context.Context, subject string, v any, after trust.Revision,
) (trust.Revision, error) {
	return c.putWithin(ctx, subject, v, after, func(string, []byte) error { return nil })
}

func (c *client) putWithin(ctx context.Context, subject string, v any, after trust.Revision,
	room func(string, []byte) error,
) (trust.Revision, error) {
	b, err := json.Marshal(v)
	if err == nil {
		err = room(subject, b)
	}
	var sequence uint64
	if err == nil {
		sequence, err = c.publish(ctx, subject, b, uint64(after))
	}
	if err != nil {
		return 0, fmt.Errorf("write %s: %w", subject, err)
	}
	return trust.Revision(sequence), nil
}

// batch writes with g, or alone if g is nil.
func (c *client) batch(ctx context.Context, g *batcher, subject string, b []byte, after uint64) (uint64, error) {
	if g == nil {
		return c.publish(ctx, subject, b, after)
	}
	return g.put(ctx, subject, b, after)
}

func (c *client) publish(ctx context.Context, subject string, b []byte, after uint64) (uint64, error) {
	if c.clustered() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, attemptTimeout)
		defer cancel()
	}
	return publish(ctx, c.js, subject, b, after)
}

// errDisconnected means that nothing was sent. nats.go would buffer the write and send it hours later, when its claim
// may belong to another node.
var errDisconnected = errors.New("no connection to the broker, nothing was sent")

func publish(ctx context.Context, js jetstream.JetStream, subject string, b []byte, after uint64) (uint64, error) {
	if after == uint64(trust.AnyRevision) {
		return publishIf(ctx, js, subject, b)
	}
	return publishIf(ctx, js, subject, b, jetstream.WithExpectLastSequencePerSubject(after))
}

func publishIf(ctx context.Context, js jetstream.JetStream, subject string, b []byte,
	conditions ...jetstream.PublishOpt,
) (uint64, error) {
	if !js.Conn().IsConnected() {
		return 0, errDisconnected
	}
	f, err := js.PublishMsgAsync(&nats.Msg{Subject: subject, Data: b},
		append(conditions, jetstream.WithRetryAttempts(0))...)
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

func isConflict(err error) bool {
	return isCode(err, jetstream.JSErrCodeStreamWrongLastSequence, jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// JetStream errors of a full disk or account, which nats.go does not name.
const (
	errCodeAccount   jetstream.ErrorCode = 10002
	errCodeResources jetstream.ErrorCode = 10023
	errCodeStorage   jetstream.ErrorCode = 10047
)

const messageOverhead = 256

// SetRoom sets how many bytes may be written before the rest is reserved for revocations, since JetStream at its limit
// refuses every write. Then records, claims and grants get [trust.ErrStoreFull]. Call it regularly.
func (s *Store) SetRoom(bytes int64) { s.room.Store(bytes) }

func (c *client) useRoom(subject string, b []byte) error {
	if c.room.Add(-int64(len(subject)+len(b)+messageOverhead)) < 0 {
		return fmt.Errorf("%w: the remaining space is reserved for revocations", trust.ErrStoreFull)
	}
	return nil
}

// wrapFull wraps an error of JetStream at its limit as [trust.ErrStoreFull].
func wrapFull(err error) error {
	if isCode(err, errCodeAccount, errCodeResources, errCodeStorage) {
		return fmt.Errorf("%w: %w", trust.ErrStoreFull, err)
	}
	return err
}

func isCode(err error, codes ...jetstream.ErrorCode) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && slices.Contains(codes, api.ErrorCode)
}

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
