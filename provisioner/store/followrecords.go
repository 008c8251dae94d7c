package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/trust"
)

const (
	// followEvery is how often the stream of records is looked at: what another process writes is known after two
	// looks, within a second.
	followInterval = 400 * time.Millisecond

	// takeEvery is after how many records that are read the own ones are taken, which come meanwhile.
	drainEvery = 1000

	// maxLacking is how often in a row the first reading may lack records that the stream is said to have.
	maxShortReads = 2
)

// FollowRecords calls each with the newest record of every identity, in its JSON form, in the order in which they were
// written, and current when that was all there is. Then it calls each with what other processes write, and own with
// what this Store writes, until ctx is done; it then returns nil. Neither may keep what it gets, except texts. own may
// be called from several goroutines. A Store has one follower of records at a time.
//
// Of several revisions that are written at about the same time only the newest may come. An older revision may come
// after a newer one: compare them. A record of this Store that is acknowledged late comes to each as well.
//
// A store that does not answer is asked again. The error is [ErrDamaged] if a server leaves out records that it has:
// end the process.
func (s *RecordStore) FollowRecords(ctx context.Context, each func(wire.Identity, []byte, trust.Revision),
	own func(*provisioner.Brief, trust.Revision), current func(),
) error {
	f := &recordFollower{s: s, each: each, current: current, queue: &ownRecords{deliver: own, sequences: make(map[uint64]struct{})}}
	s.own.Store(f.queue)
	defer s.own.Store(nil)
	return s.poll(ctx, streamNodes, followInterval, func() error { return f.check(ctx) })
}

// A recordFollower reads the records that its process has not written itself. It looks at the stream's last sequence:
// while all up to there are own records, it reads nothing. A sequence that is not known as an own one counts as
// another's with the next look only, since its acknowledgement may be on the way.
type recordFollower struct {
	s       *RecordStore
	each    func(wire.Identity, []byte, trust.Revision)
	current func()
	queue   *ownRecords

	complete     bool   // the first reading came to its end
	lastSequence uint64 // last sequence of the stream at the look before
	shortReads   int    // how often in a row the first reading lacked records
}

// check reads what has come up to the look before, or everything at first.
func (f *recordFollower) check(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	now, err := f.s.infos.ask(bounded, streamNodes)
	if err != nil {
		return err
	}
	through := f.lastSequence
	f.lastSequence = now.info.State.LastSeq
	f.queue.drain()
	switch {
	case !f.complete:
		return f.readAll(ctx)
	case f.queue.advance() < through:
		return f.readThrough(ctx, through)
	}
	return nil
}

// readAll reads the newest record of each identity. A server leaves out, in silence, what it cannot read: so those that
// come are counted.
func (f *recordFollower) readAll(ctx context.Context) error {
	l, err := f.s.openReader(ctx, streamNodes, lastPerSubject(subjectNode+"*"))
	if err != nil {
		return err
	}
	defer l.close(ctx)
	want, came := l.pending, uint64(0)
	end, err := leaderEnd(ctx, f.s.client, streamNodes, "")
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
	if came < want && (err == nil || errors.Is(err, errBehind)) && !f.s.clustered() { // else another server may have it
		err = fmt.Errorf("%w: %d of the %d records of stream %s can be read", ErrDamaged, came, want, streamNodes)
		if f.shortReads++; f.shortReads < maxShortReads {
			return errors.New(err.Error()) // one that is written very often may have gone meanwhile
		}
		return adviseLost(err)
	}
	if err != nil {
		return err
	}
	f.queue.skipTo(end)
	f.complete = true
	f.current()
	return nil
}

// readThrough reads the records up to a sequence that have not come yet.
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

// tell tells of one record.
func (f *recordFollower) deliver(ctx context.Context, m message) {
	if id, err := wire.ParseSubjectToken(m.subject[len(subjectNode):]); err == nil {
		f.each(id, m.data, trust.Revision(m.sequence))
	} else {
		f.s.log.WarnContext(ctx, "record on no identity's subject", "subject", m.subject, "err", err)
	}
}
