package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"muster/provisioner"
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

type message struct {
	subject  string
	data     []byte
	sequence uint64
	at       time.Time // by the broker's clock
}

// scan calls each for every message that a consumer with cfg gets, oldest first, up to the first error of each. It
// reads at least to the sequence through; see leaderEnd. If the answering replica lags behind that for too long, it
// returns errBehind, and on a single server [ErrDamaged].
func (c *client) scan(ctx context.Context, stream string, through uint64, cfg jetstream.OrderedConsumerConfig,
	each func(message) error,
) error {
	l, err := c.openReader(ctx, stream, cfg)
	if err != nil {
		return fmt.Errorf("scan of %s: %w", stream, err)
	}
	defer l.close(ctx)
	return l.each(ctx, through, each)
}

// scanAll is scan of a whole stream. It returns [ErrDamaged] if each did not get every message that the leader counts.
func (c *client) scanAll(ctx context.Context, stream string, each func(message) error) error {
	before, err := c.info(ctx, stream)
	if err != nil {
		return err
	}
	end, came := before.State.LastSeq, uint64(0)
	err = c.scan(ctx, stream, end, jetstream.OrderedConsumerConfig{}, func(m message) error {
		if m.sequence <= end {
			came++
		}
		return each(m)
	})
	if err != nil || came >= before.State.Msgs {
		return err
	}
	after, err := c.info(ctx, stream)
	if err != nil {
		return err
	}
	// Each new message replaces one at most.
	if lost := before.State.Msgs - came; lost > after.State.LastSeq-end {
		return fmt.Errorf("%w: %d of the %d messages of stream %s can be read", ErrDamaged, came, before.State.Msgs,
			stream)
	}
	return nil
}

func lastPerSubject(filter string) jetstream.OrderedConsumerConfig {
	return jetstream.OrderedConsumerConfig{FilterSubjects: []string{filter},
		DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy}
}

var errBehind = errors.New("the replica lags behind: try again")

func (l *streamReader) each(ctx context.Context, through uint64, each func(message) error) error {
	late, short := l.c.timeout, errBehind
	if !l.c.clustered() {
		late, short = min(late, nextTimeout), ErrDamaged
	}
	for read := uint64(0); l.pending > 0 || read < through; { // if there is nothing to read, next would block
		wait, cancel := ctx, context.CancelFunc(func() {})
		if l.pending == 0 {
			wait, cancel = context.WithTimeout(ctx, late)
		}
		m, meta, err := l.next(wait)
		cancel()
		switch {
		case err != nil && l.pending == 0 && wait.Err() != nil && ctx.Err() == nil:
			return fmt.Errorf("scan of %s: %w: read to sequence %d of %d", l.stream, short, read, through)
		case err != nil:
			return fmt.Errorf("scan of %s: %w", l.stream, err)
		case m == nil:
			continue
		}
		if err := each(message{m.Subject(), m.Data(), meta.Sequence.Stream, meta.Timestamp}); err != nil {
			return err
		}
		read = meta.Sequence.Stream
	}
	return nil
}

// leaderEnd returns the leader's last sequence of the stream, or of subject if that is not empty. Without messages it
// is 0.
func (c *client) leaderEnd(ctx context.Context, stream, subject string) (uint64, error) {
	if subject != "" {
		m, err := c.lastMessage(ctx, stream, subject)
		if m == nil {
			return 0, err
		}
		return m.Sequence, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	info, err := c.info(ctx, stream)
	if err != nil {
		return 0, err
	}
	return info.State.LastSeq, nil
}

const (
	fetchMessages = 5000
	fetchBytes    = 4 << 20
)

// fetch calls each for the messages of one answer, from the sequence from on. It reports whether there are more. Any
// replica may answer.
func (c *client) fetch(ctx context.Context, stream, filter string, from uint64, each func(message) error,
) (more bool, err error) {
	wanted := map[string]any{"seq": from, "batch": fetchMessages, "max_bytes": fetchBytes}
	if filter != "" {
		wanted["next_by_subj"] = filter
	}
	request, err := json.Marshal(wanted)
	if err != nil {
		return false, err
	}
	inbox := c.nc.NewInbox()
	sub, err := c.nc.SubscribeSync(inbox)
	if err != nil {
		return false, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := c.nc.PublishRequest("$JS.API.DIRECT.GET."+stream, inbox, request); err != nil {
		return false, err
	}
	for before := "0"; ; {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return false, err
		}
		switch status := m.Header.Get("Status"); status {
		case "":
		case "204", "404":
			return !slices.Contains([]string{"", "0"}, m.Header.Get(headerPending)), nil
		default:
			return false, fmt.Errorf("direct get: status %s %s", status, m.Header.Get("Description"))
		}
		// Each message has the sequence before it, so a lost message is noticed.
		if follows := m.Header.Get(jetstream.LastSequenceHeader); follows != before {
			return false, fmt.Errorf("direct get: a message is missing: the next one follows sequence %s, want %s",
				follows, before)
		}
		next, err := storedMessage(m)
		if err == nil {
			err = each(next)
		}
		if err != nil {
			return false, err
		}
		before = m.Header.Get(jetstream.SequenceHeader)
	}
}

const headerPending = "Nats-Num-Pending"

func storedMessage(m *nats.Msg) (message, error) {
	sequence, err := strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64)
	if err != nil {
		return message{}, err
	}
	at, _ := time.Parse(time.RFC3339Nano, m.Header.Get(jetstream.TimeStampHeaer))
	return message{m.Header.Get(jetstream.SubjectHeader), m.Data, sequence, at}, nil
}

func (c *client) deleteConsumer(ctx context.Context, stream string, consumer jetstream.Consumer) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deleteTimeout)
	defer cancel()
	_ = c.js.DeleteConsumer(ctx, stream, consumer.CachedInfo().Name)
}

const deleteTimeout = time.Second

// decodeAt decodes a valid message, which must be on its own subject.
func decodeAt[T any, P interface {
	*T
	checker
}](m message, subject func(P) string) (P, error) {
	v := P(new(T))
	err := decode(m.data, v)
	if err == nil && subject(v) != m.subject {
		err = fmt.Errorf("it is on %s, and belongs on %s", m.subject, subject(v))
	}
	if err != nil {
		return nil, fmt.Errorf("sequence %d: %w", m.sequence, err)
	}
	return v, nil
}

func decodeRecord(m message) (*provisioner.Record, error) {
	return decodeAt(m, func(r *provisioner.Record) string { return subjectNode + r.Identity.SubjectToken() })
}
