package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"muster/provisioner/trust"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/wire"
)

// A reading is a consumer of the records.
type reading struct {
	consumer jetstream.Consumer
	messages jetstream.MessagesContext
	pending  uint64 // what the stream had beyond what came last
}

// start begins to read, after what has come. Going on there loses nothing:
// messages come in their order, so the last one of each subject has either come
// or is still to come.
func (f *recordFollower) start(ctx context.Context) error {
	// One try: whoever follows has more patience than the library, and less time.
	cfg := jetstream.OrderedConsumerConfig{FilterSubjects: []string{subjectNode + "*"}, DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, MaxResetAttempts: 1}
	if f.through > 0 {
		cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, f.through+1
	}
	ctx, cancel := context.WithTimeout(ctx, f.s.timeout)
	defer cancel()
	consumer, err := f.s.ordered(ctx, streamNodes, cfg)
	if err != nil {
		return err
	}
	messages, err := consumer.Messages(jetstream.PullExpiry(followAsk), jetstream.PullHeartbeat(followBeat))
	if err != nil {
		f.s.drop(ctx, streamNodes, consumer)
		return err
	}
	f.reading = &reading{consumer, messages, consumer.CachedInfo().NumPending}
	f.came = time.Now()
	// If it is our own after all, whose acknowledgement took long, that is soon over.
	f.strange = f.came.Add(silentAfter - aloneAfter)
	f.complete(ctx) // of what is empty no message comes
	return nil
}

// complete notes it the first time that all there was has come.
func (f *recordFollower) complete(ctx context.Context) {
	if !f.whole && f.reading.pending == 0 && f.through >= f.known {
		f.whole = true
		f.stop(ctx) // until another process writes
		f.current()
	}
}

// maxStalls is how often the first reading may stall at one place.
const maxStalls = 3

// stalled begins the first reading anew, of which nothing comes although records are ahead. A server leaves out, in
// silence, what it cannot read: if the reading stalls again and again at one place, the error is [ErrDamaged]. In a
// cluster another server may have the record.
func (f *recordFollower) stalled() error {
	if f.stalls++; f.through != f.stalledAt {
		f.stalls, f.stalledAt = 1, f.through
	}
	if f.stalls == maxStalls && !f.s.cluster() {
		return adviseLost(fmt.Errorf("%w: %d records of stream %s cannot be read", ErrDamaged, f.reading.pending, streamNodes))
	}
	f.through = 0
	return fmt.Errorf("nothing comes after %d, and %d records are ahead", f.stalledAt, f.reading.pending)
}

// stop ends reading.
func (f *recordFollower) stop(ctx context.Context) {
	if f.reading == nil {
		return
	}
	f.reading.messages.Stop()
	f.s.drop(ctx, streamNodes, f.reading.consumer)
	f.reading = nil
}

// read takes what comes until ctx is done, and returns nil then.
func (f *recordFollower) read(ctx context.Context) error {
	for f.reading != nil {
		m, err := f.reading.messages.Next(jetstream.NextContext(ctx))
		switch {
		case err == nil: // a message that comes as ctx ends is not to be lost
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout), ctx.Err() != nil:
			return nil
		default:
			return err
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		f.reading.pending = meta.NumPending
		f.take(ctx, message{subject: m.Subject(), data: m.Data(), sequence: meta.Sequence.Stream, at: meta.Timestamp})
		f.complete(ctx)
	}
	select {
	case <-ctx.Done():
	case <-f.queue.wake:
	}
	return nil
}

// take takes a message in.
func (f *recordFollower) take(ctx context.Context, m message) {
	f.through, f.came = m.sequence, time.Now()
	switch {
	case f.mine.has(m.sequence):
	case !f.whole:
		f.tell(ctx, m)
	default:
		if len(f.held) == maxHeld {
			f.settle(ctx, 1)
		}
		f.held = append(f.held, m)
	}
}

// settle tells of the first n that are held, but for those that turned out to be
// ours.
func (f *recordFollower) settle(ctx context.Context, n int) {
	for i := range f.held[:n] {
		if m := f.held[i]; !f.mine.has(m.sequence) {
			f.strange = time.Now()
			f.tell(ctx, m)
		}
		f.held[i] = message{}
	}
	f.held, f.ripe = f.held[n:], max(0, f.ripe-n)
}

// tell tells of one record.
func (f *recordFollower) tell(ctx context.Context, m message) {
	if id, err := wire.ParseSubjectToken(m.subject[len(subjectNode):]); err == nil {
		f.each(id, m.data, trust.Revision(m.sequence))
	} else {
		f.s.log.WarnContext(ctx, "record on no identity's subject", "subject", m.subject, "err", err)
	}
}
