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

// A message is a message of a stream.
type message struct {
	subject  string
	data     []byte
	sequence uint64
	at       time.Time // by the broker's clock
}

// scan calls each for every message that a consumer with cfg gets, in the order of writing. It stops at the first error
// of each. Messages written meanwhile may be included.
//
// It does not end before the sequence through. In a cluster any replica may answer and lack the end that the leader has
// (see [leaderEnd]): scan waits for it as long as for an answer. Then the error is errBehind: try again.
func (c *client) scan(ctx context.Context, stream string, through uint64, cfg jetstream.OrderedConsumerConfig, each func(message) error) error {
	l, err := c.openReader(ctx, stream, cfg)
	if err != nil {
		return fmt.Errorf("scan of %s: %w", stream, err)
	}
	defer l.close(ctx)
	return l.each(ctx, through, each)
}

// lastPerSubject returns the configuration of a consumer that gets the last message of each subject of the filter.
func lastPerSubject(filter string) jetstream.OrderedConsumerConfig {
	return jetstream.OrderedConsumerConfig{FilterSubjects: []string{filter}, DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy}
}

// errBehind means that a replica lacks the end of a stream that its leader has.
var errBehind = errors.New("the server is behind")

// each calls each for every message, and does not end before the sequence through; see [client.scan].
func (l *streamReader) each(ctx context.Context, through uint64, each func(message) error) error {
	for read := uint64(0); l.pending > 0 || read < through; { // an empty set delivers nothing
		wait, cancel := ctx, context.CancelFunc(func() {})
		if l.pending == 0 {
			wait, cancel = context.WithTimeout(ctx, l.c.timeout)
		}
		m, meta, err := l.next(wait)
		cancel()
		switch {
		case err != nil && l.pending == 0 && wait.Err() != nil && ctx.Err() == nil:
			return fmt.Errorf("scan of %s: %w: read to sequence %d of %d: try again", l.stream, errBehind, read, through)
		case err != nil:
			return fmt.Errorf("scan of %s: %w", l.stream, err)
		case m == nil:
			continue // the pending messages were deleted
		}
		if err := each(message{m.Subject(), m.Data(), meta.Sequence.Stream, meta.Timestamp}); err != nil {
			return err
		}
		read = meta.Sequence.Stream
	}
	return nil
}

// leaderEnd returns the sequence of the last message that the stream's leader has, of one subject if that is not empty;
// 0 if there is none.
func leaderEnd(ctx context.Context, c *client, stream, subject string) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	if subject == "" {
		info, err := c.info(ctx, stream)
		if err != nil {
			return 0, err
		}
		return info.State.LastSeq, nil
	}
	m, err := retryIfClustered(ctx, c, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
		return c.handles[stream].GetLastMsgForSubject(ctx, subject)
	})
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return 0, nil
	case err != nil:
		return 0, err
	}
	return m.Sequence, nil
}

const (
	fetchMessages = 5000
	fetchBytes    = 4 << 20
)

// fetch calls each for one answer's worth of messages that match the filter, from a sequence on, and reports whether
// there are more. Any replica may answer, with what it has.
func (c *client) fetch(ctx context.Context, stream, filter string, from uint64, each func(message) error) (more bool, err error) {
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
		case "204", "404": // end of the answer, or no messages
			return !slices.Contains([]string{"", "0"}, m.Header.Get(headerPending)), nil
		default:
			return false, fmt.Errorf("direct get: status %s %s", status, m.Header.Get("Description"))
		}
		// Each message names the one before it, so a dropped message is noticed.
		if follows := m.Header.Get(jetstream.LastSequenceHeader); follows != before {
			return false, fmt.Errorf("direct get: a message that follows %s, want %s", follows, before)
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

// headerPending is the number of messages behind one.
const headerPending = "Nats-Num-Pending"

// storedMessage returns the stream's message in one that was republished or fetched.
func storedMessage(m *nats.Msg) (message, error) {
	sequence, err := strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64)
	if err != nil {
		return message{}, err
	}
	at, _ := time.Parse(time.RFC3339Nano, m.Header.Get(jetstream.TimeStampHeaer))
	return message{m.Header.Get(jetstream.SubjectHeader), m.Data, sequence, at}, nil
}

// deleteConsumer deletes a consumer at once, since the broker's number of consumers is limited. On an error the broker
// deletes it after [consumerIdleLimit].
func (c *client) deleteConsumer(ctx context.Context, stream string, consumer jetstream.Consumer) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deleteTimeout)
	defer cancel()
	_ = c.js.DeleteConsumer(ctx, stream, consumer.CachedInfo().Name)
}

// deleteTimeout bounds the deletion of a consumer, which takes less than a millisecond.
const deleteTimeout = time.Second

// decodeRecord decodes a record and compares its identity with its subject.
func decodeRecord(m message) (*provisioner.Record, error) {
	var r provisioner.Record
	if err := decode(m.data, &r); err != nil {
		return nil, fmt.Errorf("sequence %d: %w", m.sequence, err)
	}
	if m.subject != subjectNode+r.Identity.SubjectToken() {
		return nil, fmt.Errorf("sequence %d: record of %q on %s", m.sequence, r.Identity, m.subject)
	}
	return &r, nil
}
