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

// DefaultInputBytes is room for about a million decisions.
const DefaultInputBytes = 256 << 20

const (
	// Limits of the queue: the decisions of batchWait at the highest rate, and 500 with the largest facts.
	maxQueued      = 8192
	maxQueuedBytes = 16 << 20

	// A batch is written at batchBytes, uncompressed, or after batchWait.
	batchBytes = 256 << 10
	batchWait  = 500 * time.Millisecond

	inputOverhead = 1 << 10 // besides facts and extensions
)

// A Recorder writes inputs of policy decisions. It delays no request: if its queue is full or the store is away,
// decisions are dropped and counted. Make one with [NewRecorder].
type Recorder struct {
	log *slog.Logger

	mu    sync.Mutex
	queue []observation // guarded by mu
	bytes int64         // guarded by mu: size of queue

	// Owned by Run.
	encoder *zstd.Encoder
	spare   []observation // memory for the next queue
	batch   []byte
	n       uint64 // decisions in batch
	packed  []byte // memory for the compressed batch

	recorded, dropped atomic.Uint64
}

type observation struct {
	input    *policies.Input
	decision *policies.Decision
	err      error
	asked    string
}

// NewRecorder returns a Recorder that writes nothing before Run.
func NewRecorder(log *slog.Logger) (*Recorder, error) {
	// One goroutine: the other cores are for enrollment. JetStream has a checksum.
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithEncoderCRC(false))
	if err != nil {
		return nil, fmt.Errorf("recorder: %w", err)
	}
	return &Recorder{log: log, encoder: encoder}, nil
}

// Observe queues a decision. It never blocks and costs less than 0.1 µs (BenchmarkObserve). It is safe for concurrent
// use.
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

// Counts returns how many decisions were sent to the broker, and how many were dropped.
func (r *Recorder) Counts() (recorded, dropped uint64) { return r.recorded.Load(), r.dropped.Load() }

// Run writes queued decisions into the store that open returns. When ctx is done, it writes the rest and returns nil.
func (r *Recorder) Run(ctx context.Context, open func() *Store) error {
	tick := time.NewTicker(batchWait)
	defer tick.Stop()
	for warned := uint64(0); ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
		r.encode(ctx, open())
		if dropped := r.dropped.Load(); dropped >= 2*warned+1 { // the first, and each time the number doubles
			warned = dropped
			r.log.WarnContext(ctx, "decisions not recorded: too many at once, or the store is not available",
				"left_out", dropped)
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}

func (r *Recorder) encode(ctx context.Context, s *Store) {
	r.mu.Lock()
	waiting := r.queue
	r.queue, r.bytes = r.spare, 0
	r.mu.Unlock()
	for _, d := range waiting {
		extended, err := wire.AppendJSON(r.batch, policies.NewRecording(d.input, d.decision, d.err, d.asked))
		if err != nil {
			r.dropped.Add(1) // JSON allows no time after the year 9999
			continue
		}
		r.batch = append(extended, '\n')
		if r.n++; len(r.batch) >= batchBytes {
			r.flush(ctx, s)
		}
	}
	r.flush(ctx, s)
	clear(waiting)
	r.spare = waiting[:0]
}

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

// write does not wait for an acknowledgement.
func (r *Recorder) write(s *Store, batch []byte) error {
	switch {
	case s == nil:
		return errors.New("the store is not open")
	case !s.nc.IsConnected():
		return errors.New("no connection to the broker") // the connection's buffer is left to events
	case s.room.Load() <= 0:
		return errors.New("the remaining space is reserved for revocations")
	}
	r.packed = r.encoder.EncodeAll(batch, r.packed[:0])
	return s.nc.Publish(subjectInputs, r.packed)
}

// ReadInputs writes to w the inputs younger than age: one [policies.Recording] as JSON per line, oldest first, and a
// blank line after each batch. First it calls started with the number of batches.
func (s *Store) ReadInputs(ctx context.Context, age time.Duration, started func(batches uint64), w io.Writer) error {
	since := time.Now().Add(-age - batchWait).UTC()
	l, err := s.openReader(ctx, streamInputs, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{subjectInputs}, DeliverPolicy: jetstream.DeliverByStartTimePolicy,
		OptStartTime: &since,
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
