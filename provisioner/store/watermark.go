package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"muster/provisioner/orders"
	"muster/provisioner/trust"
)

var (
	// ErrDamaged means that a store has less than its [Watermark]. Do not write to it.
	ErrDamaged = errors.New("the store has lost data")

	// ErrNoWatermark means that a store has messages but no watermark.
	ErrNoWatermark = fmt.Errorf("%w, or its watermark", ErrDamaged)

	// ErrWatermark means that a watermark could not be written. End the process.
	ErrWatermark = errors.New("the watermark could not be written")
)

// A Mark is the state of a durable stream. Messages are only replaced by newer ones, so no number shrinks.
type Mark struct {
	Created  time.Time `json:"created"`
	First    uint64    `json:"first"` // 0 if the stream is empty, like Last
	Last     uint64    `json:"last"`
	Messages uint64    `json:"messages"`
	Subjects uint64    `json:"subjects"`
}

func markOf(info *jetstream.StreamInfo) Mark {
	s := info.State
	m := Mark{Created: info.Created, Messages: s.Msgs, Subjects: s.NumSubjects}
	if s.Msgs > 0 {
		m.First, m.Last = s.FirstSeq, s.LastSeq
	}
	return m
}

// A Watermark is the state of the durable streams, kept outside of the store's directory: nats-server silently drops
// the messages after a damaged block.
type Watermark struct {
	Installation string          `json:"installation"`
	Epoch        uint64          `json:"epoch"` // of the newest [orders.Recovery], or 0
	At           time.Time       `json:"at"`
	Streams      map[string]Mark `json:"streams"`
}

// Missing returns [ErrDamaged], wrapped, if found has less than w.
func (w *Watermark) Missing(found map[string]Mark) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(w.Streams)) {
		before := w.Streams[name]
		current, present := found[name]
		since := "since " + w.At.UTC().Format(time.RFC3339)
		switch {
		case !present:
			errs = append(errs, fmt.Errorf("%w: stream %s is missing, it had %d messages", ErrDamaged, name,
				before.Messages))
		case !current.Created.Equal(before.Created):
			errs = append(errs, fmt.Errorf("%w: stream %s was made anew %s", ErrDamaged, name, since))
		case current.Last < before.Last || current.Messages < before.Messages || current.Subjects < before.Subjects:
			errs = append(errs, fmt.Errorf("%w: stream %s has %d messages up to sequence %d for %d keys, %s it had "+
				"%d up to %d for %d",
				ErrDamaged, name, current.Messages, current.Last, current.Subjects, since, before.Messages, before.Last,
				before.Subjects))
		case keepsAll(name) && current.Last-current.Messages > before.Last-before.Messages:
			errs = append(errs, fmt.Errorf("%w: stream %s has %d messages, but its last sequence is %d",
				ErrDamaged, name, current.Messages, current.Last))
		}
	}
	return errors.Join(errs...)
}

func keepsAll(stream string) bool { return stream == streamClaims || stream == streamRevocations }

// Revocations returns the number of revocations in the store.
func (w *Watermark) Revocations() int { return int(w.Streams[streamRevocations].Messages) }

func (w *Watermark) equal(other *Watermark) bool {
	return other != nil && w.Epoch == other.Epoch && maps.Equal(w.Streams, other.Streams)
}

const (
	// A cluster may have less for clusterGrace, since a new leader may still be applying messages.
	clusterGrace = 30 * time.Second

	// After watermarkInterval an unchanged watermark is written again, to test the disk.
	watermarkInterval = 10 * time.Second

	markMaxAge = time.Second
)

// A guard compares the streams with the watermark, and writes it. mu guards the fields after it.
type guard struct {
	mu        sync.Mutex
	files     []*WatermarkFile // empty if no watermark is kept
	previous  *Watermark       // last observed; nil at first
	written   *Watermark       // content of the files; nil if unknown
	writtenAt time.Time
	lessSince time.Time // zero unless streams have less than previous

	doubt  atomic.Pointer[error] // why the streams may have less than previous, or nil
	nodes  atomic.Uint64         // last sequence of the stream, as last observed
	claims atomic.Uint64         // the same
}

// errNotCompared is the doubt before the first comparison, and after the connection was lost: another server, or one
// with another disk, may answer.
var errNotCompared = errors.New("the store was not compared with its watermark yet")

// doubtAfter returns a handler of lost connections that also calls before, if not nil.
func (g *guard) doubtAfter(before nats.ConnErrHandler) nats.ConnErrHandler {
	return func(nc *nats.Conn, err error) {
		doubt := errNotCompared // a new address, see observe
		g.doubt.Store(&doubt)
		if before != nil {
			before(nc, err)
		}
	}
}

// after reports whether a new message follows the last one that was observed before it was sent. If not, the stream was
// made anew, and the write must not count.
func (g *guard) after(stream string, sequence, last uint64) error {
	if sequence > last {
		return nil
	}
	err := fmt.Errorf("%w: a new message of stream %s has sequence %d, but the last was %d", ErrDamaged, stream,
		sequence, last)
	g.doubt.Store(&err)
	return err
}

func (g *guard) open(paths []string) (newest *Watermark, err error) {
	for _, path := range paths {
		f, w, err := OpenWatermark(path)
		if err != nil {
			return nil, errors.Join(err, g.close())
		}
		g.files = append(g.files, f)
		if w != nil && (newest == nil || w.At.After(newest.At)) {
			newest = w
		}
	}
	return newest, nil
}

func (g *guard) close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var errs []error
	for _, f := range g.files {
		errs = append(errs, f.Close())
	}
	g.files = nil
	return errors.Join(errs...)
}

// The caller holds mu.
func (g *guard) write(w *Watermark) error {
	for _, f := range g.files {
		if err := f.Write(w); err != nil {
			return fmt.Errorf("%w: %w", ErrWatermark, err)
		}
	}
	g.written, g.writtenAt = w, time.Now()
	return nil
}

// observe compares found with the previous state and writes the latter: the server shows messages of an atomic batch
// before they are synced. lost is what cannot be read, or nil. It ends doubt, which was read before found.
func (g *guard) observe(found *Watermark, lost error, doubt *error, cluster bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	previous := g.previous
	if previous != nil && found.Epoch <= previous.Epoch {
		lost = errors.Join(previous.Missing(found.Streams), lost)
	}
	if lost != nil {
		g.doubt.Store(&lost)
		if g.lessSince.IsZero() {
			g.lessSince = time.Now()
		}
		if cluster && time.Since(g.lessSince) < clusterGrace {
			return nil
		}
		return lost
	}
	g.doubt.CompareAndSwap(doubt, nil)
	g.nodes.Store(found.Streams[streamNodes].Last)
	g.claims.Store(found.Streams[streamClaims].Last)
	g.previous, g.lessSince = found, time.Time{}
	if previous == nil || previous.equal(g.written) && time.Since(g.writtenAt) < watermarkInterval {
		return nil
	}
	return g.write(previous)
}

// CheckWatermark returns [ErrDamaged], wrapped, if a durable stream is missing, was created again, has less than
// before, or cannot be read; in a cluster, for 30 s. Until that ends, the views are not fresh. It also writes the
// watermark; if that fails, it returns [ErrWatermark], wrapped. Call it once a second. It returns nil if the store does
// not answer.
func (s *Store) CheckWatermark(ctx context.Context) error {
	doubt, within := s.guard.doubt.Load(), markMaxAge
	if doubt != nil {
		within = 0
	}
	found, err := s.marks(ctx, within)
	if err != nil {
		return nil //nolint:nilerr // [Store.Probe] detects that
	}
	found.Epoch = newestEpoch(s.logs.Recovery)
	if err := s.guard.observe(found, s.losses.check(ctx), doubt, s.clustered()); err != nil {
		return fmt.Errorf("store: %w", adviseLost(err))
	}
	return nil
}

// marks returns the state of the durable streams, without the epoch and missing streams. Answers may be as old as
// within.
func (c *client) marks(ctx context.Context, within time.Duration) (*Watermark, error) {
	found := &Watermark{
		Installation: c.installation.ID,
		At:           time.Now(),
		Streams:      make(map[string]Mark),
	}
	for _, name := range durableStreams {
		a, err := retryUntilDone(ctx,
			func(ctx context.Context) (*timedInfo, error) { return c.infos.recent(ctx, name, within) })
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound):
			continue
		case err != nil:
			return nil, err
		}
		found.Streams[name] = markOf(a.info)
	}
	return found, nil
}

func newestEpoch(log trust.Log[*orders.Recovery]) uint64 {
	if e, found := log.Get(orders.RecoveryKey); found && e.Value != nil {
		return e.Value.Epoch
	}
	return 0
}

// After a recovery (an accepted loss or a restore) compareWatermark accepts less than the watermark. A cluster gets
// time, as in [Store.CheckWatermark].
func (s *Store) compareWatermark(ctx context.Context, cfg Config, found *Watermark) error {
	mark, err := s.guard.open(cfg.Watermarks)
	if err != nil || len(cfg.Watermarks) == 0 {
		return err
	}
	recovery, err := newestEntry[orders.Recovery](ctx, s.client, subjectRecovery)
	if err != nil {
		return err
	}
	if recovery != nil {
		found.Epoch = recovery.Epoch
	}
	switch {
	case mark == nil && !found.empty() && !cfg.FirstWatermark:
		return adviseLost(fmt.Errorf("%w: %s is missing", ErrNoWatermark, cfg.Watermarks[0]))
	case mark == nil:
		if !found.empty() {
			s.log.InfoContext(ctx, "first watermark written from the present state of the store", "path",
				cfg.Watermarks[0])
		}
		// A process that is killed must not leave messages without a watermark.
		return s.guard.write(found)
	case found.Epoch > mark.Epoch:
		s.log.WarnContext(ctx, "watermark restarts after a recovery of the store", "epoch", found.Epoch)
		return nil
	case cfg.FirstWatermark: // a cluster
		s.guard.previous, s.guard.written = mark, mark
		s.guard.doubt.Store(&errNotCompared)
		return nil
	}
	return adviseLost(mark.Missing(found.Streams))
}

func (w *Watermark) empty() bool {
	for _, m := range w.Streams {
		if m.Messages > 0 {
			return false
		}
	}
	return true
}

func adviseLost(err error) error {
	if !errors.Is(err, ErrDamaged) {
		return err
	}
	return fmt.Errorf("%w: bring back a copy of the disk, restore a backup into an empty store, "+
		"or go on with the loss: muster recovery begin --accept-loss", err)
}

// Close writes the watermark after the last write. After an error the next start compares with an older watermark.
func (s *Store) Close(ctx context.Context) error {
	found, err := s.marks(ctx, 0)
	if err == nil {
		found.Epoch = newestEpoch(s.logs.Recovery)
		s.guard.mu.Lock()
		previous := s.guard.previous
		if len(s.guard.files) > 0 && (previous == nil || previous.Missing(found.Streams) == nil) {
			err = s.guard.write(found)
		}
		s.guard.mu.Unlock()
	}
	return errors.Join(err, s.guard.close())
}

// losses are readings that found less than the stream counts. A disk may lose a message that the server still counts,
// and then the [Watermark] shows nothing. mu guards found.
type losses struct {
	mu    sync.Mutex
	found map[string]func(context.Context) error
}

// add has check repeat a reading until it returns nil.
func (l *losses) add(what string, again func(context.Context) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.found[what] = again
}

// check returns the losses that still stand, each wrapping [ErrDamaged].
func (l *losses) check(ctx context.Context) error {
	l.mu.Lock()
	found := maps.Clone(l.found)
	l.mu.Unlock()
	var errs []error
	for what, again := range found {
		err := again(ctx)
		if errors.Is(err, ErrDamaged) {
			errs = append(errs, err)
		}
		if err == nil {
			l.mu.Lock()
			delete(l.found, what)
			l.mu.Unlock()
		}
	}
	return errors.Join(errs...)
}
