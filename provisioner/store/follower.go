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

// Errors of [Follower.Run]. End the process.
var (
	// ErrStreamGone means that a followed stream was deleted, and perhaps made anew.
	ErrStreamGone = errors.New("the stream that is followed was deleted")

	// ErrStreamShorter means that a stream has lost messages that were read. What is written next would not be seen.
	ErrStreamShorter = errors.New("the store has lost entries that were read")
)

const (
	// checkInterval is how often the leader is asked for the stream's end. Views stay younger than [trust.MaxAge]
	// although a leader hears from its replicas only once a second.
	checkInterval = 500 * time.Millisecond

	// checkTimeout bounds one check: an answer older than that is useless.
	checkTimeout = trust.MaxAge

	// shorterGrace is how long a stream must be shorter than read until it counts as damaged: a replica can deliver
	// what its leader has not applied yet.
	shorterGrace = time.Second

	// republishPrefix begins the subjects on which followed streams republish their messages.
	republishPrefix = "muster.taken."
)

type applier interface{ apply(m message) }

// A Follower keeps the views of one stream up to date. The stream republishes each message; every checkInterval the
// leader is asked for creation time and last sequence, and missing messages are read. The age of the views comes from
// these checks alone: a subscription does not notice that its stream was deleted, and a leader without a majority goes
// on answering.
type Follower struct {
	client *client
	stream string
	views  []applier
	gap    chan struct{} // capacity 1: a message was missed

	mu           sync.Mutex
	created      time.Time // guarded by mu
	position     uint64    // guarded by mu: every message up to here was applied
	applied      uint64    // guarded by mu: number of messages applied
	complete     bool      // guarded by mu: the number of messages read agreed with the stream's once
	asOf         time.Time // guarded by mu: monotonic
	shorterSince time.Time // guarded by mu: since when the stream is shorter than position; zero if it is not
	lastErr      error     // guarded by mu: of the last check
}

func (c *client) newFollower(stream string) *Follower {
	return &Follower{client: c, stream: stream, gap: make(chan struct{}, 1)}
}

// addView adds a view to a follower that is not open yet, and returns the view.
func addView[V any](f *Follower, v *View[V]) *View[V] {
	v.follower = f
	f.views = append(f.views, v)
	return v
}

// Open subscribes and reads the stream to its end. closed ends the subscription. Until [Follower.Run] is called, the
// views get republished messages but grow old.
func (f *Follower) Open(ctx context.Context) (closed func(), err error) {
	// Before the first check, so that no message falls between.
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

// setLastErr keeps the outcome of the last check for [Follower.Fresh].
func (f *Follower) setLastErr(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lastErr = err
}

// Run checks until ctx is done; then it returns nil. Its errors are [ErrStreamGone], [ErrStreamShorter] and
// [ErrDamaged]. While the stream does not answer, the views grow old.
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

// Fresh returns nil while the views are at most [trust.MaxAge] old by the monotonic clock: every message stored before
// that was applied.
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

// onRepublished applies the next message. After a gap the next check reads what is missing.
func (f *Follower) onRepublished(m *nats.Msg) {
	taken, err := storedMessage(m)
	if err != nil {
		return // not from the stream; checks find what is missing
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case taken.sequence == f.position+1:
		f.apply(taken)
	case taken.sequence > f.position:
		select {
		case f.gap <- struct{}{}:
		default: // a check is due already
		}
	}
}

// apply gives the next message to the views. The caller holds mu.
func (f *Follower) apply(m message) {
	for _, v := range f.views {
		v.apply(m)
	}
	f.applied++
	f.position = m.sequence
}

// check asks for the stream's end and reads up to it.
func (f *Follower) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	f.mu.Lock()
	had := f.position // before the request: messages arrive meanwhile
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

// majoritySilence returns how long the leader has not heard from a majority of its replicas. A leader that is cut off
// from them goes on answering.
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

// checkUnchanged returns an error unless the stream is the one that was read and still has all that was read.
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

// catchUp reads from the position to the stream's end. On a single server, a message that cannot be read is damage.
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
		// The replica that answered lags behind its leader.
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

// fetch applies messages after a sequence, in order, and returns their number.
func (f *Follower) fetch(ctx context.Context, after uint64) (n int, err error) {
	_, err = f.client.fetch(ctx, f.stream, "", after+1, func(m message) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if n++; m.sequence > f.position { // not republished meanwhile
			f.apply(m)
		}
		return nil
	})
	return n, err
}

// catchUpTo returns once every message up to a sequence was applied. Mostly it was republished before its
// acknowledgement came.
func (f *Follower) catchUpTo(ctx context.Context, sequence uint64) error {
	f.mu.Lock()
	position := f.position
	f.mu.Unlock()
	if position >= sequence {
		return nil
	}
	return f.check(ctx)
}
