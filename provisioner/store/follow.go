package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/wire"
)

// followAgain is how long who follows waits before it asks a store again that
// did not answer; chosen, a part of the second within which everybody is to see
// the same.
const followAgain = 200 * time.Millisecond

// A follower is told once in followBeat that the store is still there, and asks
// for more once in followAsk. Chosen: what it is cut off from without being told
// it notices after two beats, which cost nothing beside a look for revocations.
const (
	followBeat = time.Second
	followAsk  = 5 * time.Second
)

// FollowSeen calls each with when nodes of the fleet were last heard of over
// their own connections, and then whenever one is, until ctx is done; it then
// returns nil. That a node speaks is the broker's word, and so is the time.
func (s *Store) FollowSeen(ctx context.Context, each func(wire.Identity, time.Time)) error {
	return s.follow(ctx, streamLifecycle, wire.AllNodeEvents, func(m message) {
		if id, _, ok := nodeEvent(m.subject); ok {
			each(id, m.at)
		}
	})
}

// follow calls each for the last message of each subject, and for all that come
// after.
func (s *Store) follow(ctx context.Context, stream, filter string, each func(message)) error {
	last := uint64(0)
	for {
		err := s.followFrom(ctx, stream, filter, &last, each)
		if ctx.Err() != nil {
			return nil
		}
		s.log.WarnContext(ctx, "store is followed again", "stream", stream, "revision", last, "err", err)
		if errors.Is(err, errShortened) {
			last = 0 // it has others than those that were had, from its beginning
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(followAgain):
		}
	}
}

// followFrom does the work of follow until something fails. last is the sequence
// of the last message that each has had, and is kept up to date.
//
// Going on after it loses nothing: messages come in their order, so the last one
// of each subject has either been had or is still to come.
func (s *Store) followFrom(ctx context.Context, stream, filter string, last *uint64, each func(message)) error {
	// One try: follow has more patience than the library, and less time.
	cfg := jetstream.OrderedConsumerConfig{FilterSubjects: []string{filter}, DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, MaxResetAttempts: 1}
	if *last > 0 {
		cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, *last+1
	}
	bounded, cancel := context.WithTimeout(ctx, s.timeout)
	l, err := s.look(bounded, stream, cfg, jetstream.PullExpiry(followAsk), jetstream.PullHeartbeat(followBeat))
	cancel()
	if err != nil {
		return fmt.Errorf("follow %s: %w", stream, err)
	}
	defer l.close(ctx)
	for {
		m, meta, err := l.next(ctx)
		if err != nil {
			return fmt.Errorf("follow %s: %w", stream, err)
		}
		if m == nil {
			continue // what was to come has had to make room
		}
		each(message{subject: m.Subject(), data: m.Data(), sequence: meta.Sequence.Stream, at: meta.Timestamp})
		*last = meta.Sequence.Stream
	}
}
