package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/trust"
)

const (
	// A record of another process is known after two checks, in less than a second.
	followInterval = 400 * time.Millisecond

	// The first reading drains the queue of own records after every drainEvery records.
	drainEvery = 1000

	// maxShortReads is how many incomplete first readings in a row count as damage.
	maxShortReads = 2
)

// FollowRecords calls each with the newest record of every identity as JSON, and then current. From then on it calls
// each for new records of other processes, and own, concurrently, for those of this Store. It returns nil when ctx is
// done. each and own may keep only strings of their arguments. Call FollowRecords once per Store.
//
// If records are missing, it calls current with [ErrDamaged], wrapped, and reads again. [Store.CheckWatermark] returns
// the same.
//
// Compare revisions, since an older one may come after a newer one.
func (s *Store) FollowRecords(ctx context.Context, each func(wire.Identity, []byte, trust.Revision),
	own func(*provisioner.Brief, trust.Revision), current func(error),
) error {
	f := &recordFollower{
		s:       s,
		each:    each,
		current: current,
		queue:   &ownRecords{deliver: own, sequences: make(map[uint64]struct{})},
	}
	s.own.Store(f.queue)
	defer s.own.Store(nil)
	return s.poll(ctx, streamNodes, followInterval, func() error { return f.check(ctx) })
}

// A recordFollower reads an unknown sequence one check later: it may be an own record whose acknowledgement is on the
// way.
type recordFollower struct {
	s       *Store
	each    func(wire.Identity, []byte, trust.Revision)
	current func(error)
	queue   *ownRecords

	complete     bool
	lastSequence uint64
	shortReads   int
	lost         atomic.Pointer[error] // what the last reading lacked, or nil
}

func (f *recordFollower) check(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	answer, err := f.s.infos.ask(bounded, streamNodes)
	if err != nil {
		return err
	}
	through := f.lastSequence
	f.lastSequence = answer.info.State.LastSeq
	f.queue.drain()
	switch {
	case !f.complete:
		return f.readAll(ctx, answer.info.State.NumSubjects)
	case f.queue.advance() < through:
		return f.readThrough(ctx, through)
	}
	return nil
}

// readAll counts the records, since a server silently skips unreadable ones. want is the leader's count.
func (f *recordFollower) readAll(ctx context.Context, want uint64) error {
	l, err := f.s.openReader(ctx, streamNodes, lastPerSubject(subjectNode+"*"))
	if err != nil {
		return err
	}
	defer l.close(ctx)
	want, came := max(want, l.pending), uint64(0)
	end, err := f.s.leaderEnd(ctx, streamNodes, "")
	if err != nil {
		return err
	}
	err = l.each(ctx, end, func(m message) error {
		f.deliver(ctx, m)
		if m.sequence <= end {
			came++
		}
		if came%drainEvery == 0 {
			f.queue.drain()
		}
		return nil
	})
	if came < want && (err == nil || errors.Is(err, errBehind) || errors.Is(err, ErrDamaged)) {
		err = fmt.Errorf("%w: %d of the %d records of stream %s can be read", ErrDamaged, came, want, streamNodes)
		if f.shortReads++; f.shortReads >= maxShortReads { // an often written record may have been replaced
			f.lost.Store(&err)
			f.s.losses.add("list of nodes", func(context.Context) error { return *cmp.Or(f.lost.Load(), new(error)) })
			f.current(err)
		}
		return err
	}
	if err != nil {
		return err
	}
	f.queue.skipTo(end)
	f.complete = true
	f.lost.Store(nil)
	f.current(nil)
	return nil
}

func (f *recordFollower) readThrough(ctx context.Context, through uint64) error {
	from := jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{subjectNode + "*"},
		DeliverPolicy:  jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:    f.queue.advance() + 1,
	}
	err := f.s.scan(ctx, streamNodes, through, from, func(m message) error {
		if m.sequence > through {
			return errEndOfStream
		}
		if own := f.queue.skipTo(m.sequence); !own {
			f.deliver(ctx, m)
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEndOfStream) {
		return err
	}
	f.queue.skipTo(through)
	return nil
}

func (f *recordFollower) deliver(ctx context.Context, m message) {
	if id, err := wire.ParseSubjectToken(m.subject[len(subjectNode):]); err == nil {
		f.each(id, m.data, trust.Revision(m.sequence))
	} else {
		f.s.log.WarnContext(ctx, "record on the subject of no identity", "subject", m.subject, "err", err)
	}
}

// maxOwnRecords is a second of writes at the highest rate; further records are read from the stream.
const maxOwnRecords = 8192

type ownRecord struct {
	brief    provisioner.Brief
	sequence uint64
}

// ownRecords queues the records of this process: reading them from the stream was most of the cost of listing nodes.
type ownRecords struct {
	deliver func(*provisioner.Brief, trust.Revision)

	mu    sync.Mutex
	items []ownRecord // guarded by mu

	drainMu   sync.Mutex
	spare     []ownRecord         // guarded by drainMu: memory for items
	sequences map[uint64]struct{} // guarded by drainMu: drained records after position
	position  uint64              // guarded by drainMu: the follower has every record up to here
}

// put keeps only strings of the record.
func (q *ownRecords) put(r *provisioner.Record, sequence uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items) < maxOwnRecords {
		q.items = append(q.items, ownRecord{r.Brief(), sequence})
	}
}

func (q *ownRecords) drain() {
	q.drainMu.Lock()
	defer q.drainMu.Unlock()
	q.mu.Lock()
	items := q.items
	q.items = q.spare[:0]
	q.mu.Unlock()
	for i := range items {
		q.deliver(&items[i].brief, trust.Revision(items[i].sequence))
		if sequence := items[i].sequence; sequence > q.position {
			q.sequences[sequence] = struct{}{}
		}
	}
	clear(items)
	q.spare = items
}

// advance moves position past drained records.
func (q *ownRecords) advance() uint64 {
	q.drainMu.Lock()
	defer q.drainMu.Unlock()
	for {
		if _, own := q.sequences[q.position+1]; !own {
			return q.position
		}
		q.position++
		delete(q.sequences, q.position)
	}
}

// skipTo moves position to a sequence that was read.
func (q *ownRecords) skipTo(sequence uint64) (own bool) {
	q.drainMu.Lock()
	defer q.drainMu.Unlock()
	q.position = max(q.position, sequence)
	_, own = q.sequences[sequence]
	delete(q.sequences, sequence)
	return own
}

// Settle delivers all own records to the follower, so that a list made afterwards shows every earlier order.
func (s *Store) Settle() {
	if q := s.own.Load(); q != nil {
		q.drain()
	}
}
