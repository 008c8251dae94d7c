package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"muster/provisioner/trust"

	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/wire"
	"muster/provisioner"
)

// How records are followed. Chosen: what another process writes is seen after
// two beats and a half, half of the second within which everybody is to see the
// same, and a beat takes 0.1 ms of CPU time.
const (
	followEvery = 200 * time.Millisecond

	// aloneAfter is how long nobody else has written when the stream is no longer
	// read: reading it again takes a new consumer, which a cluster agrees on.
	aloneAfter = 10 * time.Second

	// silentAfter is how long nothing may come of what the stream is known to have.
	silentAfter = 2 * time.Second

	// busyShare is the part of a beat in which records are read for the first time
	// while this process is busy, which is to write busyWrites a beat: who comes first
	// has enrolled before all are listed. Chosen: a million records take some ten seconds of
	// CPU time, and with a million stored nine tenths of the rate are to be left;
	// busyWrites are a tenth of what two cores can.
	busyShare  = 16
	busyWrites = 100

	// The first reading of a stream of manyMessages waits until this process has not been
	// busy for calmAfter, and no longer than listsAfter. To find the newest record of each
	// identity, a broker reads all of the stream before the first comes: with a million a
	// second of CPU time in which it writes nothing, and 110 MB that it keeps for
	// minutes. Who starts in the middle of a storm has nodes waiting. All chosen;
	// with a million records stored, the p99 of 40,000 nodes is 95 to 99 ms with it and 129
	// to 140 without, at half of the memory (measured; docs/performance.md).
	manyMessages = 200_000
	calmAfter    = 5 * time.Second
	listsAfter   = 30 * time.Second

	// maxHeld bounds what waits for a beat; see [recordFollower.held].
	maxHeld = 4096
)

// FollowRecords calls each with the newest record of every identity, in its
// JSON form, in the order in which they were written, and current when that was
// all there is. Then it calls each with what others write, and own with what this
// Store writes, until ctx is done; it then returns nil. It calls one at a time.
// Neither must keep what it gets, but for texts.
//
// Of several revisions that are written at about the same time only the newest
// may come. An older revision may come after a newer one: compare them. A record
// of this Store whose acknowledgement was lost comes as others' do, and any of them
// may.
//
// A store that does not answer is asked again, from where it stopped, so a
// broker that restarts, or a cluster that elects, is no end of it. The error is
// [ErrDamaged] if a server leaves out records that it has: end the process.
func (s *Store) FollowRecords(ctx context.Context, each func(wire.Identity, []byte, trust.Revision),
	own func(*provisioner.Brief, trust.Revision), current func(),
) error {
	f := &recordFollower{s: s, each: each, own: own, current: current, queue: s.handovers.open()}
	defer s.handovers.close(f.queue)
	for {
		err := f.run(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, ErrDamaged) {
			return err
		}
		if f.said != err.Error() { // once, not at each try
			f.said = err.Error()
			s.log.WarnContext(ctx, "store is followed again", "stream", streamNodes, "revision", f.through, "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(followAgain):
		}
	}
}

// A recordFollower knows what has come of the records. While nobody else writes,
// it reads nothing: it asks for the last sequence once a beat, and sees that all up
// to there is its own. Having its own records
// delivered and decoded was most of what listing nodes cost.
//
// A sequence that nobody knows to be ours may still be: the acknowledgement is on
// its way. So it counts as another's only after a beat. Should it be ours all the
// same, it is decoded for nothing.
type recordFollower struct {
	s       *Store
	each    func(wire.Identity, []byte, trust.Revision)
	own     func(*provisioner.Brief, trust.Revision)
	current func()
	queue   *handover
	said    string // what went wrong since it last went well

	began   time.Time // when the first beat was
	calm    time.Time // when this process became less than busy
	busy    bool      // this process wrote many records in the last beat
	whole   bool      // current was called
	through uint64    // all up to this sequence has come or is ours
	known   uint64    // last sequence of the stream, a beat ago
	mine    spans     // sequences of ours; none that is needed no more

	// held is what came of the stream a short time ago and is not known to be ours,
	// in its order; ripe of them have been there for a beat.
	held []message
	ripe int

	stalls    int // of the first reading at stalledAt; see stalled
	stalledAt uint64

	reading *reading  // nil while nobody else writes
	strange time.Time // when something of others last came
	came    time.Time // when anything last came, or reading began
}

// run follows until something fails. Whatever it has come to by then is kept, so
// that nothing is lost by going on from there.
func (f *recordFollower) run(ctx context.Context) error {
	defer f.stop(ctx)
	for {
		if err := f.beat(ctx); err != nil {
			return fmt.Errorf("follow %s: %w", streamNodes, err)
		}
		next := time.After(followEvery)
		patience := followEvery
		if f.busy && !f.whole {
			patience /= busyShare
		}
		until, cancel := context.WithTimeout(ctx, patience)
		err := f.read(until)
		cancel()
		if patience < followEvery {
			select {
			case <-next:
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("follow %s: %w", streamNodes, err)
		}
		f.said = ""
	}
}

// beat takes what was handed over, looks how long the stream is, and begins or
// ends reading it.
func (f *recordFollower) beat(ctx context.Context) error {
	written := f.queue.take()
	f.note(len(written), time.Now())
	for _, w := range written {
		f.own(&w.brief, trust.Revision(w.sequence))
		f.mine.add(w.sequence)
	}
	f.queue.done()
	f.settle(ctx, f.ripe)
	f.ripe = len(f.held)
	state, err := f.last(ctx)
	if err != nil {
		return err
	}
	last, messages := state.LastSeq, state.Msgs
	before := f.known
	f.known = last
	if f.whole && f.reading == nil {
		f.through = f.mine.after(f.through)
	}
	switch missing := before > f.through; {
	case f.reading == nil && (f.whole && !missing || f.waits(messages, time.Now())):
	case f.reading == nil:
		err = f.start(ctx)
	case f.reading != nil && !f.whole && f.reading.pending > 0 && time.Since(f.came) > silentAfter:
		err = f.stalled()
	case missing && time.Since(f.came) > silentAfter:
		err = f.silent(ctx, before)
	case time.Since(f.strange) > aloneAfter && f.whole:
		f.stop(ctx)
	}
	if len(f.held) == 0 {
		f.mine.drop(f.through)
	} else {
		f.mine.drop(f.held[0].sequence - 1)
	}
	return err
}

// silent is called when nothing has come for a while of what the stream has, up to
// last.
func (f *recordFollower) silent(ctx context.Context, last uint64) error {
	if f.reading.pending > 0 {
		return fmt.Errorf("nothing comes after %d of %d", f.through, last)
	}
	// That nothing is ahead was so when something last came.
	switch _, err := f.s.nodes.GetMsg(ctx, f.through+1, jetstream.WithGetMsgSubject(subjectNode+"*")); {
	case err == nil:
		return fmt.Errorf("nothing comes after %d of %d", f.through, last)
	case !errors.Is(err, jetstream.ErrMsgNotFound):
		return err
	}
	f.through = last // it has been deleted
	f.complete(ctx)
	return nil
}

// note notes how many records this process wrote in the last beat.
func (f *recordFollower) note(written int, now time.Time) {
	if f.began.IsZero() {
		f.began, f.calm = now, now
	}
	f.busy = written >= busyWrites
	if f.busy {
		f.calm = now
	}
}

// waits reports whether the first reading of a stream of so many messages should wait.
func (f *recordFollower) waits(messages uint64, now time.Time) bool {
	return f.through == 0 && messages >= manyMessages && now.Sub(f.calm) < calmAfter && now.Sub(f.began) < listsAfter
}

// last returns what the stream has.
func (f *recordFollower) last(ctx context.Context) (state jetstream.StreamState, err error) {
	ctx, cancel := context.WithTimeout(ctx, askAgain)
	defer cancel()
	stream, err := f.s.js.Stream(ctx, streamNodes)
	if err != nil {
		return state, err
	}
	return stream.CachedInfo().State, nil
}
