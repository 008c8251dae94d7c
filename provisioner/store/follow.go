package store

import (
	"context"
	"errors"
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

// A follower is told once in followBeat that the store is still there, and asks
// for more once in followAsk. Chosen: what it is cut off from without being told
// it notices after two beats, which cost nothing beside a look for revocations.
const (
	followBeat = time.Second
	followAsk  = 5 * time.Second
)

// FollowSeen calls each with when nodes of the fleet were heard of over their own
// connections, and then whenever one is, until ctx is done; it then returns nil. That a
// node speaks is the broker's word, and so is the time. Once it has said of every node
// that is kept when it was heard of, it calls current with since when that is kept: of
// whoever it has not named nobody knows whether it was heard of before. The calls
// are from several goroutines, and of one node not in the order of its times.
func (s *Store) FollowSeen(ctx context.Context, each func(wire.Identity, time.Time), current func(since time.Time)) error {
	var mu sync.Mutex
	read := map[string]uint64{} // guarded by mu: up to where each stream was
	// What was said before nodes had streams counts: who waits for his next "alive" is not
	// to be taken for unheard of, and retired.
	all := []string{streamEvents, streamLifecycle, streamAlive}
	g, following := errgroup.WithContext(ctx)
	for _, stream := range all {
		g.Go(func() error {
			return s.follow(following, stream, wire.AllNodeEvents, func(m message) {
				if id, _, ok := nodeEvent(m.subject); ok {
					each(id, m.at)
				}
			}, func(last uint64) error {
				mu.Lock()
				defer mu.Unlock()
				if read[stream] = last; len(read) < len(all) || current == nil {
					return nil
				}
				since, err := s.heardSince(following, read[streamEvents] > 0)
				if err != nil {
					return err
				}
				current(since)
				current = nil
				return nil
			})
		})
	}
	return g.Wait()
}

// heardSince returns since when it is kept that nodes were heard of: as long as there is
// the stream for that or, if some of it is still among the events, as these reach back.
func (s *Store) heardSince(ctx context.Context, amongEvents bool) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	name := streamAlive
	if amongEvents {
		name = streamEvents
	}
	stream, err := ask(ctx, s, func(ctx context.Context) (jetstream.Stream, error) { return s.js.Stream(ctx, name) })
	if err != nil {
		return time.Time{}, fmt.Errorf("stream %s: %w", name, err)
	}
	info := stream.CachedInfo()
	if info.State.FirstSeq > max(1, info.Config.FirstSeq) && amongEvents { // it has lost its beginning
		return info.State.FirstTime, nil
	}
	return info.Created, nil
}

// follow calls each for the last message of each subject, and for all that come
// after. Whenever these are all for now it calls current with the sequence of the last of
// them, 0 if there was none; an error of that is as one of the store.
func (s *Store) follow(ctx context.Context, stream, filter string, each func(message), current func(last uint64) error) error {
	last, said := uint64(0), ""
	reached := func(last uint64) error { said = ""; return current(last) }
	for {
		err := s.followFrom(ctx, stream, filter, &last, each, reached)
		if ctx.Err() != nil {
			return nil
		}
		if said != err.Error() { // once, not at each try
			said = err.Error()
			s.log.WarnContext(ctx, "store is followed again", "stream", stream, "revision", last, "err", err)
		}
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
func (s *Store) followFrom(ctx context.Context, stream, filter string, last *uint64, each func(message), current func(uint64) error) error {
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
		if l.pending == 0 {
			if err := current(*last); err != nil {
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
