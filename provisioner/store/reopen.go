package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
)

// ErrRestored means that a backup was restored under a store that was open: what
// its provisioner remembers is of another one. Restart the provisioner.
var ErrRestored = errors.New("a backup was restored while the store was open: restart the provisioner")

// ErrShorter means that the end of a log is gone that the provisioner has read: it
// would pass over what is written there next, a revocation perhaps. Restart the
// provisioner, which reads all of it and appends what its journal has.
var ErrShorter = errors.New("the store has lost entries that were read: restart the provisioner")

// followed is up to where each log has been read that is followed by sequence, by
// the name of its stream.
type followed struct {
	mu sync.Mutex
	to map[string]uint64 // guarded by mu
}

// note takes in that all up to a sequence of the stream was read.
func (f *followed) note(stream string, to uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.to == nil {
		f.to = make(map[string]uint64)
	}
	f.to[stream] = max(f.to[stream], to)
}

// of returns up to where the stream was read.
func (f *followed) of(stream string) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.to[stream]
}

// Reopen looks whether the store is still itself after its broker was
// restarted: a disk that comes back may have lost what was never synced, or may
// be another disk. Streams of reports that are gone are made anew; that the
// records are there is only looked at, since an empty store in place of theirs
// would free every identity. The error is [ErrInstallation] if it is another
// store, [ErrRestored] or [ErrHalfRestored] if a backup is in its place, [ErrShorter] if the end of a log
// is gone, or [ErrLost], which says what stream is missing: nothing may be issued then. A cluster that
// has no leader for one of them yet is an error within seconds: try again.
func (s *Store) Reopen(ctx context.Context) error {
	switch r, err := once(ctx, s, func(ctx context.Context) (restore, error) { return checkRestored(ctx, s.js) }); {
	case err != nil:
		return fmt.Errorf("store: %w", err)
	case r != s.restored && r != (restore{}):
		return fmt.Errorf("store: %w", ErrRestored)
	}
	all := streams(s.replicas, s.capacity, s.inputBytes)
	for _, c := range all {
		if reports(c.Name) {
			continue
		}
		read := s.followed.of(c.Name) // before: meanwhile more is read
		stream, err := once(ctx, s, func(ctx context.Context) (jetstream.Stream, error) { return s.js.Stream(ctx, c.Name) })
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("store: %w", lost(c.Name))
		}
		if err == nil {
			err = shorter(stream.CachedInfo(), read)
		}
		if err != nil {
			return fmt.Errorf("store: stream %s: %w", c.Name, err)
		}
	}
	s.subjects.forget()
	var i Installation
	if _, err := once(ctx, s, func(ctx context.Context) (uint64, error) { return s.last(ctx, s.entries, subjectInstallation, &i) }); err != nil {
		return fmt.Errorf("store: read installation: %w", err)
	}
	if i.ID != s.installation.ID {
		return fmt.Errorf("store: %w: it is %s, ours is %s: give the provisioner its own data directory back", ErrInstallation, i.ID, s.installation.ID)
	}
	// Last: where the records are not, these would be in the way of a restore. At once:
	// those of a cluster that have no leader yet would be waited for one after the other.
	g, asking := errgroup.WithContext(ctx)
	for _, c := range all {
		if !reports(c.Name) {
			continue
		}
		g.Go(func() error {
			_, err := once(asking, s, func(ctx context.Context) (jetstream.Stream, error) { return s.make(ctx, c) })
			if s.cluster() && unanswered(err) && asking.Err() == nil {
				// There it is for as long as the records are, which are on as many servers.
				s.log.WarnContext(ctx, "a stream of reports does not answer yet", "stream", c.Name)
				return nil
			}
			if err != nil {
				return fmt.Errorf("store: stream %s: %w", c.Name, full(err))
			}
			return nil
		})
	}
	return g.Wait()
}

// once asks a cluster for as long as it may take to answer. Without a leader it does not
// answer later what it was asked meanwhile; a provisioner waited twelve seconds for that, and
// refused everybody, when all the others served again (a storm, its leader killed in it).
func once[T any](ctx context.Context, s *Store, question func(context.Context) (T, error)) (T, error) {
	ctx, cancel := s.acknowledged(ctx)
	defer cancel()
	return question(ctx)
}

// reports tells the streams of reports from those of records.
func reports(name string) bool {
	return slices.Contains([]string{streamEvents, streamAttempts, streamLifecycle, streamAlive, streamInputs, streamWaiting, streamComponents}, name)
}
