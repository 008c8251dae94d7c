package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"muster/provisioner/trust"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/wire"
	"muster/provisioner/events"
)

// Entries that belong to no identity.
const (
	subjectClock = "muster.entry.clock"
	subjectProbe = "muster.entry.probe"
)

// A Clock keeps the newest time on record.
type Clock struct{ *client }

// ClockMark implements [trust.ClockStore].
func (s *Clock) ClockMark(ctx context.Context) (*trust.ClockMark, trust.Revision, error) {
	var m trust.ClockMark
	revision, err := s.last(ctx, streamEntries, subjectClock, &m)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read clock mark: %w", err)
	}
	return &m, trust.Revision(revision), nil
}

// Time returns what time it is on the store's server.
func (s *Clock) Time(ctx context.Context) (time.Time, error) {
	a, err := s.infos.recent(ctx, streamRevocations, time.Second)
	if err != nil {
		return time.Time{}, fmt.Errorf("ask the store for the time: %w", err)
	}
	return a.info.TimeStamp.Add(time.Since(a.came)), nil
}

// PutClockMark implements [trust.ClockStore].
func (s *Clock) PutClockMark(ctx context.Context, m *trust.ClockMark, after trust.Revision) (trust.Revision, error) {
	revision, err := s.putAnyway(ctx, subjectClock, m, uint64(after))
	if err != nil {
		return 0, fmt.Errorf("write clock mark: %w", err)
	}
	return trust.Revision(revision), nil
}

// Probe writes something of no meaning, and returns nil once it is on disk: a
// store that answers reads may have lost its disk. Whoever asks gives ctx a
// deadline, since a broken one does not answer at all. The error of one that is
// well and only has no room is [trust.ErrStoreFull].
func (s *Store) Probe(ctx context.Context) error {
	if _, err := s.js.Publish(ctx, subjectProbe, []byte("{}"), jetstream.WithRetryAttempts(0)); err != nil {
		return fmt.Errorf("probe store: %w", full(err))
	}
	return nil
}

// justNow is how long ago the last acknowledgement of a store may be that has writes in hand.
// Chosen: in a storm there are hundreds in that time.
const justNow = time.Second

// Wrote reports whether a write of a record or a claim was acknowledged just now: a store that
// leaves [Store.Probe] without an answer is slow then, and not away. It does not block.
func (s *Store) Wrote() bool {
	at := s.acked.Load()
	return at > 0 && time.Since(s.opened)-time.Duration(at) < justNow
}

// reported is how long the store remembers the ids of events, so that one
// reported twice is kept once. It is what JetStream does by default.
const reported = 2 * time.Minute

// Report publishes an event and returns nil once the store has it. Reporting an
// event again, known by its Attempt, adds nothing within [reported].
//
// Streams of reports acknowledge nothing (see streams). So the event is looked for instead; if another one of its kind
// came right behind it, it is not found, and reporting it again is harmless.
func (s *EventLog) Report(ctx context.Context, e events.Event) error {
	b, err := s.cloudEvent(e)
	if err != nil {
		return fmt.Errorf("report %s: %w", e.Type, err)
	}
	id := e.Attempt
	if id == "" {
		id = wire.NewID()
	}
	m := &nats.Msg{Subject: eventSubject(e), Data: b, Header: nats.Header{jetstream.MsgIDHeader: {id}}}
	name := streamEvents
	if e.Type == events.Attempt {
		name = streamAttempts
	}
	stream, err := s.js.Stream(ctx, name)
	if err == nil {
		err = s.nc.PublishMsg(m)
	}
	if err != nil {
		return fmt.Errorf("report %s: %w", e.Type, err)
	}
	tick := time.NewTicker(reportLook)
	defer tick.Stop()
	for {
		found, err := stream.GetLastMsgForSubject(ctx, m.Subject)
		if err == nil && found.Header.Get(jetstream.MsgIDHeader) == id {
			return nil
		}
		if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
			return fmt.Errorf("report %s: %w", e.Type, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("report %s: not found in the store: %w", e.Type, ctx.Err())
		case <-tick.C:
		}
	}
}

// reportLook is how often a report is looked for: it takes a millisecond to
// arrive.
const reportLook = 5 * time.Millisecond
