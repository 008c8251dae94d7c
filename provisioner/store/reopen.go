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
	// All at once: a busy cluster took two seconds to answer one after the other, and nobody is
	// let in before (a storm, its leader killed in it).
	bounded, cancel := s.acknowledged(ctx)
	defer cancel()
	var (
		all       []present
		restored  restore
		i         Installation
		asked     sync.WaitGroup
		half, err error
	)
	asked.Go(func() { restored, half = checkRestored(bounded, s.js) })
	asked.Go(func() { _, err = s.last(bounded, s.entries, subjectInstallation, &i) })
	all = s.find(bounded, func(string) bool { return true })
	asked.Wait()
	switch {
	case half != nil:
		return fmt.Errorf("store: %w", half)
	case restored != s.restored && restored != (restore{}):
		return fmt.Errorf("store: %w", ErrRestored)
	}
	for _, f := range all {
		if reports(f.Name) {
			continue
		}
		if f.err == nil {
			f.err = shorter(f.info, f.read)
		}
		switch {
		case errors.Is(f.err, jetstream.ErrStreamNotFound):
			return fmt.Errorf("store: %w", lost(f.Name))
		case f.err != nil:
			return fmt.Errorf("store: stream %s: %w", f.Name, f.err)
		}
	}
	s.extents.forget()
	switch {
	case err != nil:
		return fmt.Errorf("store: read installation: %w", err)
	case i.ID != s.installation.ID:
		return fmt.Errorf("store: %w: it is %s, ours is %s: give the provisioner its own data directory back", ErrInstallation, i.ID, s.installation.ID)
	}
	return s.remake(ctx, all)
}

// remake makes the streams of reports anew that are gone, and has those of one broker keep as
// much as it has room for by now. Where the records are not, these would be in the way of a
// restore: so they come last.
func (s *Store) remake(ctx context.Context, all []present) error {
	ctx, cancel := s.acknowledged(ctx)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	for _, f := range all {
		if !reports(f.Name) {
			continue
		}
		g.Go(func() error {
			err := f.err
			if errors.Is(err, jetstream.ErrStreamNotFound) || !s.cluster() {
				_, err = s.make(ctx, f.StreamConfig)
			}
			if s.cluster() && unanswered(err) {
				// There it is for as long as the records are, which are on as many servers.
				s.log.WarnContext(ctx, "a stream of reports does not answer yet", "stream", f.Name)
				return nil
			}
			if err != nil {
				return fmt.Errorf("store: stream %s: %w", f.Name, full(err))
			}
			return nil
		})
	}
	return g.Wait()
}

// A present is what there is of a stream.
type present struct {
	jetstream.StreamConfig // as it is to be

	read uint64                // up to where it had been read when it was asked for
	info *jetstream.StreamInfo // nil with an error
	err  error
}

// find asks for the streams that are wanted, in the order of streams. It asks for all of them at
// once, since each has a leader of its own, and does not wait as long for a stream of reports as
// for one of records.
func (s *Store) find(ctx context.Context, wanted func(name string) bool) []present {
	var all []present
	for _, c := range streams(s.replicas, s.capacity, s.inputBytes) {
		if wanted(c.Name) {
			all = append(all, present{StreamConfig: c, read: s.followed.of(c.Name)})
		}
	}
	var asked sync.WaitGroup
	for i := range all {
		f := &all[i]
		asked.Go(func() {
			ctx := ctx
			if reports(f.Name) && s.cluster() {
				bounded, cancel := context.WithTimeout(ctx, besides)
				defer cancel()
				ctx = bounded
			}
			stream, err := ask(ctx, s, func(ctx context.Context) (jetstream.Stream, error) { return s.js.Stream(ctx, f.Name) })
			if f.err = err; err == nil {
				f.info = stream.CachedInfo()
			}
		})
	}
	asked.Wait()
	return all
}

// reports tells the streams of reports from those of records.
func reports(name string) bool {
	return slices.Contains([]string{streamEvents, streamAttempts, streamLifecycle, streamAlive, streamInputs, streamWaiting, streamComponents}, name)
}
