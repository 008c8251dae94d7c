package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/wire"
	"muster/policies"
)

// DefaultInputBytes bounds what decisions saw, compressed. With 2 KB of facts,
// of which machines have much in common, a decision takes some 100 to 300 bytes
// in a batch: a million decisions or more.
const DefaultInputBytes = 256 << 20

// Bounds of a [Recorder]; chosen.
const (
	// maxQueued and maxQueuedBytes bound what waits to be written: batchWait at
	// the highest rate, and what 500 of the largest facts take.
	maxQueued      = 8192
	maxQueuedBytes = 16 << 20

	// batchBytes is when a batch is written, uncompressed, and batchWait how long
	// its first decision waits for others at most. Larger batches compress hardly better,
	// and compressed they are far below a broker's limit of 1 MiB a message.
	batchBytes = 256 << 10
	batchWait  = 500 * time.Millisecond

	inputOverhead = 1 << 10 // of an input beside its facts and extensions
)

// A Recorder writes what decisions saw into the store, in compressed batches. It
// holds nobody up: what it cannot keep up with is dropped, and counted. Make one
// with [NewRecorder].
type Recorder struct {
	log *slog.Logger

	mu    sync.Mutex
	queue []observation // guarded by mu
	bytes int64         // guarded by mu: of waiting

	// Only touched by Run.
	encoder *zstd.Encoder
	spare   []observation // room for waiting
	batch   []byte        // what is to be written
	n       uint64        // decisions in it
	packed  []byte        // the last batch, compressed, for its room

	recorded, dropped atomic.Uint64
}

// decided is one decision on its way into the store.
type observation struct {
	input    *policies.Input
	decision *policies.Decision
	err      error
	asked    string
}

// NewRecorder returns a Recorder. Nothing is written until Run.
func NewRecorder(log *slog.Logger) (*Recorder, error) {
	// One goroutine: it runs beside enrollment. No checksum: JetStream has one.
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false))
	if err != nil {
		return nil, fmt.Errorf("recorder: %w", err)
	}
	return &Recorder{log: log, encoder: encoder}, nil
}

// Observe takes a decision; it is what [provisioner.Config].Observe wants. It
// never blocks and does not look at what it takes, so a request pays for a place
// in a queue and no more (below 0.1 µs, BenchmarkObserve): waking a goroutine would
// cost more than the rest. Safe for concurrent use.
func (r *Recorder) Observe(in *policies.Input, d *policies.Decision, err error, asked string) {
	size := int64(len(in.Facts) + len(in.Token.Extensions) + len(in.Evidence) + inputOverhead)
	r.mu.Lock()
	room := len(r.queue) < maxQueued && r.bytes+size <= maxQueuedBytes
	if room {
		r.queue = append(r.queue, observation{in, d, err, asked})
		r.bytes += size
	}
	r.mu.Unlock()
	if !room {
		r.dropped.Add(1)
	}
}

// Counts returns how many decisions were handed to the broker, and how many were
// dropped, since there were too many at once or the store could take none.
func (r *Recorder) Counts() (recorded, dropped uint64) { return r.recorded.Load(), r.dropped.Load() }

// Run writes into the store that open returns until ctx is done, then what still
// waits, and returns nil. It owns every goroutine of the recorder. A process that
// is killed loses what waits: a second's decisions, which are a report and not the
// truth.
func (r *Recorder) Run(ctx context.Context, open func() *Store) error {
	tick := time.NewTicker(batchWait)
	defer tick.Stop()
	for warned := uint64(0); ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
		r.encode(ctx, open())
		if dropped := r.dropped.Load(); dropped >= 2*warned+1 { // the first, and each time it doubles
			warned = dropped
			r.log.WarnContext(ctx, "decisions are not recorded: there are too many at once, or the store takes none", "left_out", dropped)
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}

// encode writes what waits, in batches.
func (r *Recorder) encode(ctx context.Context, s *Store) {
	r.mu.Lock()
	waiting := r.queue
	r.queue, r.bytes = r.spare, 0
	r.mu.Unlock()
	for _, d := range waiting {
		longer, err := wire.AppendJSON(r.batch, policies.NewRecording(d.input, d.decision, d.err, d.asked))
		if err != nil {
			r.dropped.Add(1) // a time beyond the year 9999, say
			continue
		}
		r.batch = append(longer, '\n')
		if r.n++; len(r.batch) >= batchBytes {
			r.flush(ctx, s)
		}
	}
	r.flush(ctx, s)
	clear(waiting) // what it refers to may go
	r.spare = waiting[:0]
}

// flush writes what has been encoded, if anything has.
func (r *Recorder) flush(ctx context.Context, s *Store) {
	if r.n == 0 {
		return
	}
	if err := r.write(s, r.batch); err != nil {
		r.dropped.Add(r.n)
		r.log.DebugContext(ctx, "decisions not recorded", "left_out", r.n, "err", err)
	} else {
		r.recorded.Add(r.n)
	}
	r.batch, r.n = r.batch[:0], 0
}

// write hands one batch to the broker, which does not acknowledge it: nobody
// waits for that.
func (r *Recorder) write(s *Store, batch []byte) error {
	switch {
	case s == nil:
		return errors.New("the store is not open")
	case !s.nc.IsConnected():
		return errors.New("the broker is away") // what waits in the connection is for events
	case s.room.Load() <= 0:
		return errors.New("the rest of the disk is for revocations")
	}
	r.packed = r.encoder.EncodeAll(batch, r.packed[:0])
	return s.nc.Publish(subjectInputs, r.packed) // which copies it
}

// Inputs are what decisions saw.
type Inputs struct{ *client }

// Read writes what decisions saw in the last age, a [policies.Recording] in
// JSON a line and a blank line after each batch, the oldest first. started gets
// the number of batches before anything is written. The age is by the broker's
// clock and to the second.
func (s *Inputs) Read(ctx context.Context, age time.Duration, started func(batches uint64), w io.Writer) error {
	since := time.Now().Add(-age - batchWait).UTC()
	l, err := s.openReader(ctx, streamInputs, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{subjectInputs}, DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &since,
	})
	if err != nil {
		return fmt.Errorf("inputs: %w", err)
	}
	defer l.close(ctx)
	if started(l.pending); l.pending == 0 {
		return nil
	}
	packed, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(8*batchBytes))
	if err != nil {
		return fmt.Errorf("inputs: %w", err)
	}
	defer packed.Close()
	var batch []byte
	return l.each(ctx, 0, func(m message) error {
		if batch, err = packed.DecodeAll(m.data, batch[:0]); err != nil {
			return fmt.Errorf("inputs: sequence %d: %w", m.sequence, err)
		}
		_, err := w.Write(append(batch, '\n'))
		return err
	})
}
