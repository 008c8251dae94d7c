package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// ErrDamaged means that a store has less than its [Watermark] says. Do not write to it: bring back a copy of the
// disk, or restore a backup.
var ErrDamaged = errors.New("the store has lost data")

// A Mark is what a stream had when it was last looked at. Nothing is ever deleted from the streams that are marked; of
// one key only the newest messages may be kept, each new one in place of an old one. So none of the numbers shrinks.
type Mark struct {
	Created  time.Time `json:"created"`
	First    uint64    `json:"first"` // sequence; 0 of an empty stream, as Last
	Last     uint64    `json:"last"`
	Messages uint64    `json:"messages"`
	Subjects uint64    `json:"subjects"`
}

// markOf returns the mark of a stream as its leader describes it.
func markOf(info *jetstream.StreamInfo) Mark {
	s := info.State
	m := Mark{Created: info.Created, Messages: s.Msgs, Subjects: s.NumSubjects}
	if s.Msgs > 0 {
		m.First, m.Last = s.FirstSeq, s.LastSeq
	}
	return m
}

// A Watermark says what the streams of records had at a time. nats-server drops, in silence, what stands behind a
// damaged block: the watermark, kept outside of the store's directory, is what tells. It also says whether the server
// ended well: if not, its indexes are removed before the next start, which then reads all blocks.
type Watermark struct {
	Installation string          `json:"installation"`
	At           time.Time       `json:"at"`
	EndedWell    bool            `json:"ended_well,omitempty"`
	Damage       string          `json:"damage,omitempty"` // what a start has found; the server does not say it twice
	Streams      map[string]Mark `json:"streams"`
}

// Missing returns what found lacks of the watermark, as an error that wraps [ErrDamaged], or nil.
func (w *Watermark) Missing(found map[string]Mark) error {
	if w.Damage != "" {
		return fmt.Errorf("%w: %s", ErrDamaged, w.Damage)
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(w.Streams)) {
		before := w.Streams[name]
		now, there := found[name]
		since := "since " + w.At.UTC().Format(time.RFC3339)
		switch {
		case !there:
			errs = append(errs, fmt.Errorf("%w: stream %s is not there, it had %d messages", ErrDamaged, name, before.Messages))
		case !now.Created.Equal(before.Created):
			errs = append(errs, fmt.Errorf("%w: stream %s was made anew %s", ErrDamaged, name, since))
		case now.Last < before.Last || now.Messages < before.Messages || now.Subjects < before.Subjects:
			errs = append(errs, fmt.Errorf("%w: stream %s has %d messages up to %d about %d keys, %s it had %d up to %d about %d",
				ErrDamaged, name, now.Messages, now.Last, now.Subjects, since, before.Messages, before.Last, before.Subjects))
		case (name == streamClaims || name == streamRevocations) && now.Messages != now.Last: // unlimited: nothing of them ever goes
			errs = append(errs, fmt.Errorf("%w: stream %s has %d messages, its last is number %d", ErrDamaged, name, now.Messages, now.Last))
		}
	}
	return errors.Join(errs...)
}

// settling is for how long the streams of a cluster may have less than before: a new leader may still be applying.
const settling = 30 * time.Second

// A guard holds the streams of records to what they had when they were last looked at.
type guard struct {
	mu   sync.Mutex
	had  *Watermark // guarded by mu; nil before the first look
	less time.Time  // guarded by mu: since when they have less, zero if they do not
}

// Missing returns an error that wraps [ErrDamaged] if a stream of records was deleted, made anew or has less than at
// an earlier call: another store came back, or somebody removed what is never removed. In a cluster that must last for
// 30 s. It is nil as well where nothing answers, which is for [Store.Probe] to tell. It is safe for concurrent use.
func (s *Store) Missing(ctx context.Context) error {
	found := &Watermark{Installation: s.installation.ID, At: time.Now(), Streams: make(map[string]Mark)}
	for _, name := range kept {
		stream, err := ask(ctx, s, func(ctx context.Context) (jetstream.Stream, error) { return s.js.Stream(ctx, name) })
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound):
			continue
		case err != nil:
			return nil
		}
		found.Streams[name] = markOf(stream.CachedInfo())
	}
	s.guard.mu.Lock()
	defer s.guard.mu.Unlock()
	var damaged error
	if s.guard.had != nil {
		damaged = s.guard.had.Missing(found.Streams)
	}
	if damaged == nil {
		s.guard.had, s.guard.less = found, time.Time{}
		return nil
	}
	if s.guard.less.IsZero() {
		s.guard.less = time.Now()
	}
	if s.cluster() && time.Since(s.guard.less) < settling {
		return nil
	}
	return fmt.Errorf("store: %w: give the servers the disks back that have it, or restore a backup into an empty store", damaged)
}
