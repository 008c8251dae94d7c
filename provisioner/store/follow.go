package store

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"muster/internal/wire"
)

// followAgain is how long who follows waits before it asks a store again that
// did not answer; chosen, a part of the second within which everybody is to see
// the same.
const followAgain = 200 * time.Millisecond

// FollowSeen calls each with when nodes of the fleet were heard of over their own
// connections, and then whenever one is, until ctx is done; it then returns nil. That a
// node speaks is the broker's word, and so is the time. Once it has said of every node
// that is kept when it was heard of, it calls current with since when that is kept: of
// whoever it has not named nobody knows whether it was heard of before. The calls
// are from several goroutines, and of one node not in the order of its times.
func (s *EventLog) FollowSeen(ctx context.Context, each func(wire.Identity, time.Time), current func(since time.Time)) error {
	var mu sync.Mutex
	read := map[string]bool{} // guarded by mu: streams that were read to their end
	all := []string{streamLifecycle, streamAlive}
	g, following := errgroup.WithContext(ctx)
	for _, stream := range all {
		g.Go(func() error {
			return s.follow(following, stream, wire.AllNodeEvents, func(m message) {
				if id, _, ok := nodeEvent(m.subject); ok {
					each(id, m.at)
				}
			}, func() error {
				mu.Lock()
				defer mu.Unlock()
				if read[stream] = true; len(read) < len(all) || current == nil {
					return nil
				}
				info, err := s.info(following, streamAlive)
				if err != nil {
					return err
				}
				current(info.Created)
				current = nil
				return nil
			})
		})
	}
	return g.Wait()
}

// follow calls each for the last message of each subject, and for all that come
// after. Whenever these are all for now it calls current; an error of that is as one of the store.
func (s *EventLog) follow(ctx context.Context, stream, filter string, each func(message), current func() error) error {
	last, said := uint64(0), ""
	reached := func() error { said = ""; return current() }
	for {
		err := s.followFrom(ctx, stream, filter, &last, each, reached)
		if ctx.Err() != nil {
			return nil
		}
		if said != err.Error() { // once, not at each try
			said = err.Error()
			s.log.WarnContext(ctx, "store is followed again", "stream", stream, "revision", last, "err", err)
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
func (s *EventLog) followFrom(ctx context.Context, stream, filter string, last *uint64, each func(message), current func() error) error {
	// One try: follow has more patience than the library, and less time.
	cfg := jetstream.OrderedConsumerConfig{FilterSubjects: []string{filter}, DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, MaxResetAttempts: 1}
	if *last > 0 {
		cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, *last+1
	}
	bounded, cancel := context.WithTimeout(ctx, s.timeout)
	l, err := s.look(bounded, stream, cfg)
	cancel()
	if err != nil {
		return fmt.Errorf("follow %s: %w", stream, err)
	}
	defer l.close(ctx)
	for {
		if l.pending == 0 {
			if err := current(); err != nil {
				return fmt.Errorf("follow %s: %w", stream, err)
			}
		}
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
