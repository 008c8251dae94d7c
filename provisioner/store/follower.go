package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"muster/provisioner/trust"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Errors of [Follower.Run], after which the process cannot go on.
var (
	// ErrStreamGone means that a stream that is followed was deleted, or deleted and made anew.
	ErrStreamGone = errors.New("the stream that is followed was deleted")

	// ErrStreamShorter means that the end of a stream is gone that was read: what is written
	// there next would not be seen.
	ErrStreamShorter = errors.New("the store has lost entries that were read")
)

const (
	// checkEvery is how often the leader is asked for the stream's end: often enough that
	// views stay below [trust.MaxAge] although a leader hears of its followers only once
	// a second.
	checkInterval = 500 * time.Millisecond

	// checkTimeout bounds one check: what takes longer says nothing that is still worth knowing.
	checkTimeout = trust.MaxAge

	// shorterFor is how long a stream must be shorter than what was read of it until it counts
	// as damaged: a replica can deliver what its leader has not applied yet.
	shorterGrace = time.Second

	// republished is where streams that are followed publish what they took.
	republishPrefix = "muster.taken."
)

// A viewer is a [View] as its follower knows it.
type applier interface{ apply(m message) }

// A Follower keeps the views of one stream up to date. The stream republishes each message
// that it took; once in checkEvery the leader is asked for creation time and last sequence,
// and what was missed is read. That, and not what arrives, says how old the views are: a
// subscription is not told that its stream was deleted, and a leader that lost its majority
// goes on answering.
type Follower struct {
	client *client
	stream string
	views  []applier
	gap    chan struct{} // has room for one: there is a gap

	mu           sync.Mutex
	created      time.Time // guarded by mu
	position     uint64    // guarded by mu: every message up to here was applied
	applied      uint64    // guarded by mu: how many messages these were
	complete     bool      // guarded by mu: what was read is all that the stream has
	asOf         time.Time // guarded by mu: monotonic
	shorterSince time.Time // guarded by mu: since when the stream is shorter than position; zero if it is not
	lastErr      error     // guarded by mu: of the last check
}

// newFollower returns a follower that has read nothing and has no views.
func (c *client) newFollower(stream string) *Follower {
	return &Follower{client: c, stream: stream, gap: make(chan struct{}, 1)}
}

// add makes a view one of the follower's, which has not been opened yet, and returns it.
func addView[V any](f *Follower, v *View[V]) *View[V] {
	v.follower = f
	f.views = append(f.views, v)
	return v
}

// Open subscribes and reads the stream to its end. Until [Follower.Run] is called, views get
// what is republished, and grow old. close ends the subscription.
func (f *Follower) Open(ctx context.Context) (closed func(), err error) {
	// Before the first question for the end, so that nothing falls between.
	sub, err := f.client.nc.Subscribe(republishPrefix+f.stream+".>", f.onRepublished)
	if err != nil {
		return nil, fmt.Errorf("follow %s: %w", f.stream, err)
	}
	closed = func() { _ = sub.Unsubscribe() }
	err = f.client.nc.FlushTimeout(f.client.timeout)
	for err == nil && f.Fresh() != nil {
		err = f.check(ctx)
		if f.setLastErr(err); err != nil && !isFatal(err) && ctx.Err() == nil {
			err = nil
			time.Sleep(retryPause) //nolint:forbidigo // a cluster may have no leader yet, and says so only when asked
		}
	}
	if err != nil {
		closed()
		return nil, fmt.Errorf("follow %s: %w", f.stream, errors.Join(err, f.Fresh()))
	}
	return closed, nil
}

// note keeps the outcome of the last check, for [Follower.Fresh] to say.
func (f *Follower) setLastErr(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lastErr = err
}

// Run checks until ctx is done, and returns nil then. Its errors are [ErrStreamGone] and
// [ErrStreamShorter]; while nothing answers the views grow old.
func (f *Follower) Run(ctx context.Context) error {
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	for {
		err := f.check(ctx)
		f.setLastErr(err)
		if isFatal(err) && ctx.Err() == nil {
			return fmt.Errorf("follow %s: %w", f.stream, err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-f.gap:
		}
	}
}

func isFatal(err error) bool {
	return errors.Is(err, ErrStreamGone) || errors.Is(err, ErrStreamShorter) || errors.Is(err, ErrDamaged)
}

// Fresh returns nil while the views are at most [trust.MaxAge] old, by the monotonic clock: every message that was in the
// stream so long ago was applied.
func (f *Follower) Fresh() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	age := time.Since(f.asOf)
	if age <= trust.MaxAge {
		return nil
	}
	err := fmt.Errorf("%w: %s last seen %v ago, limit %v", trust.ErrRevocationsUnknown, f.stream, age.Round(time.Millisecond), trust.MaxAge)
	if f.lastErr != nil {
		return fmt.Errorf("%w: %w", err, f.lastErr)
	}
	return err
}

// pushed takes in what the stream has republished, in order. Behind a gap the next check reads
// the message with what was missed.
func (f *Follower) onRepublished(m *nats.Msg) {
	taken, err := storedMessage(m)
	if err != nil {
		return // not the stream's; the next check finds what is
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case taken.sequence == f.position+1:
		f.apply(taken)
	case taken.sequence > f.position:
		select {
		case f.gap <- struct{}{}:
		default: // it was kicked already
		}
	}
}

// apply gives the message after the position to the views. The caller holds mu.
func (f *Follower) apply(m message) {
	for _, v := range f.views {
		v.apply(m)
	}
	f.applied++
	f.position = m.sequence
}

// check asks for the stream's end and reads up to there.
func (f *Follower) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	f.mu.Lock()
	had := f.position // before the question: messages come meanwhile
	f.mu.Unlock()
	now, err := f.client.infos.ask(ctx, f.stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return ErrStreamGone
	}
	if err != nil {
		return err
	}
	info := now.info
	silence, err := majoritySilence(info)
	if err == nil {
		err = f.checkUnchanged(info, had)
	}
	if err == nil {
		err = f.catchUp(ctx, info.State, info.Config.Replicas <= 1)
	}
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.complete && f.applied < info.State.Msgs {
		return fmt.Errorf("%w: stream %s: %d of its %d messages can be read", ErrDamaged, f.stream, f.applied, info.State.Msgs)
	}
	f.complete = true
	f.asOf = now.asked.Add(-silence)
	return nil
}

// majoritySilence returns for how long the leader of the stream has not heard of a majority
// of its replicas. A leader that is cut off from them goes on answering as one.
func majoritySilence(info *jetstream.StreamInfo) (time.Duration, error) {
	if info.Cluster == nil {
		return 0, nil
	}
	if info.Cluster.Leader == "" {
		return 0, errors.New("the stream has no leader")
	}
	var silent []time.Duration
	for _, r := range info.Cluster.Replicas {
		if !r.Offline {
			silent = append(silent, r.Active)
		}
	}
	needed := info.Config.Replicas / 2 // besides the leader
	if len(silent) < needed {
		return 0, fmt.Errorf("the leader hears of %d of the %d replicas that it needs", len(silent), needed)
	}
	if needed == 0 {
		return 0, nil
	}
	slices.Sort(silent)
	return silent[needed-1], nil
}

// same returns an error unless the stream is the one that was read, with all that was read.
func (f *Follower) checkUnchanged(info *jetstream.StreamInfo, had uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.created.IsZero():
		f.created = info.Created
	case !f.created.Equal(info.Created):
		return fmt.Errorf("%w and made anew", ErrStreamGone)
	}
	if info.State.LastSeq >= had {
		f.shorterSince = time.Time{}
		return nil
	}
	err := fmt.Errorf("%w: it ends at sequence %d, read to %d", ErrStreamShorter, info.State.LastSeq, had)
	if f.shorterSince.IsZero() {
		f.shorterSince = time.Now()
	}
	if time.Since(f.shorterSince) < shorterGrace {
		return errors.New("perhaps: " + err.Error()) // not fatal yet
	}
	return err
}

// fill reads what comes after the position up to the stream's end. On one server, alone, what cannot be read then is
// damaged.
func (f *Follower) catchUp(ctx context.Context, state jetstream.StreamState, alone bool) error {
	for tries := 1; ; tries++ {
		f.mu.Lock()
		after := f.position
		f.mu.Unlock()
		if after >= state.LastSeq {
			return nil
		}
		n, err := f.fetch(ctx, after)
		if err != nil {
			return err
		}
		if n > 0 {
			continue
		}
		if alone && tries > fetchTries {
			return fmt.Errorf("%w: stream %s can be read to message %d of %d", ErrDamaged, f.stream, after, state.LastSeq)
		}
		// The replica that answered is behind its leader.
		select {
		case <-ctx.Done():
			return fmt.Errorf("read to sequence %d of %d: %w", after, state.LastSeq, ctx.Err())
		case <-time.After(fetchPause):
		}
	}
}

const (
	fetchPause = 20 * time.Millisecond
	fetchTries = 5
)

// fetch applies the next messages after a sequence, in order, and returns how many these are.
func (f *Follower) fetch(ctx context.Context, after uint64) (n int, err error) {
	_, err = f.client.fetch(ctx, f.stream, "", after+1, func(m message) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if n++; m.sequence > f.position { // it was not pushed meanwhile
			f.apply(m)
		}
		return nil
	})
	return n, err
}

// reach returns once every message up to a sequence was applied, which mostly was pushed before its acknowledgement came.
func (f *Follower) catchUpTo(ctx context.Context, sequence uint64) error {
	f.mu.Lock()
	position := f.position
	f.mu.Unlock()
	if position >= sequence {
		return nil
	}
	return f.check(ctx)
}
