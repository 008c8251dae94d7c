package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"muster/provisioner/trust"

	"github.com/nats-io/nats.go/jetstream"
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
