package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats.go/jetstream"
)

// Whole returns an error if streams of records are not what they were under the open store,
// as when somebody deletes or changes one at servers that are others': [ErrLost] if one is gone,
// or some of what it must keep, and [ErrShorter] if the end of one is that was read: whoever reads it goes on
// behind that, and only another process does not. It makes
// none. One that keeps or takes less than it has to is configured anew, which the log says; if the
// servers refuse that, the error says what it is. The error is nil as well where
// nobody answers, which is for [Store.Probe] to tell. A server of a cluster that has just become its
// leader may not know all streams for a moment: ask again.
func (s *Store) Whole(ctx context.Context) error {
	for _, f := range s.find(ctx, func(name string) bool { return !reports(name) }) {
		info, want := f.info, f.StreamConfig
		if errors.Is(f.err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("store: %w", lost(want.Name))
		}
		if f.err != nil {
			continue
		}
		if err := cmp.Or(beginning(info), shorter(info, f.read), s.extents.check(info)); err != nil {
			return fmt.Errorf("store: %w", err)
		}
		less := lessThan(info.Config, want)
		if len(less) == 0 {
			continue
		}
		err := s.putBack(ctx, info.Config, want)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("store: stream %s was changed, and cannot be changed back: %s: %w", want.Name, strings.Join(less, ", "), err)
		}
		s.changed(ctx, want.Name, less)
	}
	return nil
}

// changed says that somebody has changed a stream, and that it is as it has to be again.
func (s *Store) changed(ctx context.Context, stream string, less []string) {
	s.log.WarnContext(ctx, "stream was changed by somebody else, it is changed back", "stream", stream, "err", errors.New(strings.Join(less, ", ")))
}

// putBack gives a stream what it is to have at least, and leaves it what it has beyond that.
func (s *Store) putBack(ctx context.Context, have, want jetstream.StreamConfig) error {
	want.Replicas = max(want.Replicas, have.Replicas)
	_, err := s.js.UpdateStream(ctx, want)
	return err
}

// lessThan says by what of its configuration a stream of records keeps less than is wanted of it, or
// takes less: all else is not ours to judge, since another version may want it so.
func lessThan(have, want jetstream.StreamConfig) (less []string) {
	differs := func(is bool, what string, have, want any) {
		if is {
			less = append(less, fmt.Sprintf("%s is %v, want %v", what, have, want))
		}
	}
	bounded := func(have, want int64) bool { return have > 0 && (want <= 0 || have < want) }
	differs(bounded(have.MaxMsgs, want.MaxMsgs), "max_msgs", have.MaxMsgs, "none")
	differs(bounded(have.MaxBytes, want.MaxBytes), "max_bytes", have.MaxBytes, "none")
	differs(have.MaxAge > 0, "max_age", have.MaxAge, "none")
	differs(bounded(int64(have.MaxMsgSize), int64(want.MaxMsgSize)), "max_msg_size", have.MaxMsgSize, "none")
	differs(bounded(have.MaxMsgsPerSubject, want.MaxMsgsPerSubject), "max_msgs_per_subject", have.MaxMsgsPerSubject, want.MaxMsgsPerSubject)
	differs(have.Replicas < want.Replicas, "replicas", have.Replicas, want.Replicas)
	differs(have.Storage != want.Storage, "storage", have.Storage, want.Storage)
	differs(have.Retention != want.Retention, "retention", have.Retention, want.Retention)
	differs(have.Discard != want.Discard, "discard", have.Discard, want.Discard)
	differs(have.PersistMode != want.PersistMode, "persist_mode", have.PersistMode, want.PersistMode)
	differs(have.NoAck && !want.NoAck, "no_ack", have.NoAck, want.NoAck)
	differs(have.Sealed, "sealed", have.Sealed, false)
	differs(have.Mirror != nil || len(have.Sources) > 0, "what it mirrors", "another stream", "none")
	differs(have.SubjectTransform != nil, "subject_transform", "there", "none")
	for _, subject := range want.Subjects {
		differs(!slices.Contains(have.Subjects, subject), "subjects", strings.Join(have.Subjects, " "), strings.Join(want.Subjects, " "))
	}
	return less
}

// beginning returns [ErrLost] if a log has lost its beginning of which nothing may go.
func beginning(info *jetstream.StreamInfo) error {
	if name := info.Config.Name; (name == streamClaims || name == streamRevocations) && info.State.FirstSeq > max(1, info.Config.FirstSeq) {
		return fmt.Errorf("%w: stream %s begins at sequence %d: what came before it was removed, by a limit perhaps that somebody has set: "+
			"restore a backup into an empty store", ErrLost, name, info.State.FirstSeq)
	}
	return nil
}

// extents is how far each stream of records went, when it was last looked at. The zero value knows
// nothing.
type extents struct {
	mu  sync.Mutex
	had map[string]extent // guarded by mu
}

// An extent is on how many subjects a stream has something, and the last sequence that it has given.
type extent struct{ subjects, last uint64 }

// check returns [ErrLost] if a stream has messages of fewer subjects than it had at the last call, of each of which the
// last one stays, or ends before where it did.
func (s *extents) check(info *jetstream.StreamInfo) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.had == nil {
		s.had = make(map[string]extent)
	}
	name, has := info.Config.Name, extent{info.State.NumSubjects, info.State.LastSeq}
	switch had := s.had[name]; {
	case has.subjects < had.subjects:
		return fmt.Errorf("%w: stream %s has something on %d subjects, and had on %d: it was removed, by a limit perhaps that somebody has set: "+
			"restore a backup into an empty store", ErrLost, name, has.subjects, had.subjects)
	case has.last < had.last:
		return fmt.Errorf("%w: stream %s ends at sequence %d, and had %d: it was made anew, with what it had before perhaps: "+
			"restore a backup into an empty store", ErrLost, name, has.last, had.last)
	}
	s.had[name] = has
	return nil
}

// forget begins anew, after a broker has come back: a disk that failed may have lost the
// newest records, and that heals by itself (docs/operations.md).
func (s *extents) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.had = nil
}

// shorter returns [ErrShorter] if a stream ends before what was read of it.
func shorter(info *jetstream.StreamInfo, read uint64) error {
	if info.State.LastSeq < read {
		return fmt.Errorf("%w: stream %s ends at sequence %d, and had %d", ErrShorter, info.Config.Name, info.State.LastSeq, read)
	}
	return nil
}
