package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/span"
	"muster/provisioner/trust"
)

// Errors of a [Follower], both [ErrDamaged].
var (
	// ErrStreamGone means that a followed stream was deleted, and perhaps created again.
	ErrStreamGone = fmt.Errorf("%w: the stream was deleted", ErrDamaged)

	// ErrStreamShorter means that a stream has lost messages that were read.
	ErrStreamShorter = fmt.Errorf("%w: entries that were read", ErrDamaged)
)

const (
	// checkInterval keeps views younger than [trust.MaxAge].
	checkInterval = 500 * time.Millisecond

	checkTimeout = trust.MaxAge

	// A stream may be shorter for shorterGrace: a replica can be ahead of its leader.
	shorterGrace = time.Second

	republishPrefix = "muster.taken."
)

// A Follower keeps the views of one stream up to date from the messages that the stream republishes. Each check asks
// the leader for the stream's creation time and last sequence, and reads missing messages. Only checks make views
// fresh: a subscription does not notice a deleted stream. mu guards the fields after it.
type Follower struct {
	client *client
	stream string
	views  []func(message)
	gap    chan struct{} // capacity 1: a message was missed

	mu           sync.Mutex
	created      time.Time
	position     uint64 // every message up to here was applied
	applied      uint64 // number of messages applied
	complete     bool
	asOf         time.Time // monotonic
	shorterSince time.Time // zero if not shorter than position
	lastErr      error     // of the last check
}

func (c *client) newFollower(stream string) *Follower {
	return &Follower{client: c, stream: stream, gap: make(chan struct{}, 1)}
}

func addView[V any](f *Follower, v *View[V]) *View[V] {
	v.follower = f
	f.views = append(f.views, v.apply)
	return v
}

// Open subscribes, until the connection is closed, and reads the stream to its end. The views stay fresh only while
// [Follower.Run] runs.
func (f *Follower) Open(ctx context.Context) error {
	// Subscribe before the first check, so that no message is missed.
	sub, err := f.client.nc.Subscribe(republishPrefix+f.stream+".>", f.onRepublished)
	if err != nil {
		return fmt.Errorf("follow %s: %w", f.stream, err)
	}
	err = f.client.nc.FlushTimeout(f.client.timeout)
	for err == nil && f.Fresh() != nil {
		err = f.check(ctx)
		if f.setLastErr(err); err != nil && !errors.Is(err, ErrDamaged) && ctx.Err() == nil {
			err = nil
			time.Sleep(retryPause) //nolint:forbidigo // a cluster may have no leader yet, and says so only when asked
		}
	}
	if err != nil {
		return fmt.Errorf("follow %s: %w", f.stream, errors.Join(err, f.Fresh(), sub.Unsubscribe()))
	}
	return nil
}

func (f *Follower) setLastErr(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lastErr = err
}

// Run checks until ctx is done. [Store.CheckWatermark] returns [ErrDamaged] while the stream lacks what was read.
func (f *Follower) Run(ctx context.Context) {
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	for {
		err := f.check(ctx)
		f.setLastErr(err)
		if errors.Is(err, ErrDamaged) {
			f.client.losses.add("view of "+f.stream, f.lost)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-f.gap:
		}
	}
}

func (f *Follower) lost(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lastErr != nil {
		return fmt.Errorf("follow %s: %w", f.stream, f.lastErr)
	}
	return nil
}

// Fresh returns nil while the views have every message older than [trust.MaxAge], by the monotonic clock.
func (f *Follower) Fresh() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	age := time.Since(f.asOf)
	if age <= trust.MaxAge {
		return nil
	}
	err := fmt.Errorf("%w: %s was last read %v ago, limit %v", trust.ErrRevocationsUnknown, f.stream,
		age.Round(time.Millisecond), trust.MaxAge)
	if f.asOf.IsZero() {
		err = fmt.Errorf("%w: %s was never read to its end", trust.ErrRevocationsUnknown, f.stream)
	}
	if f.lastErr != nil {
		return fmt.Errorf("%w: %w", err, f.lastErr)
	}
	return err
}

// onRepublished applies the next message. If messages are missing, it triggers a check.
func (f *Follower) onRepublished(m *nats.Msg) {
	taken, err := storedMessage(m)
	if err != nil {
		return // not from the stream
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case taken.sequence == f.position+1:
		f.apply(taken)
	case taken.sequence > f.position:
		select {
		case f.gap <- struct{}{}:
		default:
		}
	}
}

// The caller holds mu.
func (f *Follower) apply(m message) {
	for _, apply := range f.views {
		apply(m)
	}
	f.applied++
	f.position = m.sequence
}

func (f *Follower) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	f.mu.Lock()
	had := f.position // read before the request, since messages arrive meanwhile
	f.mu.Unlock()
	answer, err := f.client.infos.ask(ctx, f.stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return ErrStreamGone
	}
	if err != nil {
		return err
	}
	info := answer.info
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
	if (!f.complete || keepsAll(f.stream)) && f.applied < info.State.Msgs {
		return fmt.Errorf("%w: stream %s: %d of its %d messages can be read", ErrDamaged, f.stream, f.applied,
			info.State.Msgs)
	}
	f.complete = true
	f.asOf = answer.asked.Add(-silence)
	return nil
}

// majoritySilence returns how long ago the leader last heard from a majority.
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
		return 0, fmt.Errorf("the leader hears from %d replicas, needs %d", len(silent), needed)
	}
	if needed == 0 {
		return 0, nil
	}
	slices.Sort(silent)
	return silent[needed-1], nil
}

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
	err := fmt.Errorf("%w: the stream ends at sequence %d, but was read to %d", ErrStreamShorter,
		info.State.LastSeq, had)
	if f.shorterSince.IsZero() {
		f.shorterSince = time.Now()
	}
	if time.Since(f.shorterSince) < shorterGrace {
		return errors.New("perhaps: " + err.Error()) // not fatal yet
	}
	return err
}

// catchUp reads to the stream's end. On a single server an unreadable message is damage.
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
			return fmt.Errorf("%w: stream %s can be read to message %d of %d", ErrDamaged, f.stream, after,
				state.LastSeq)
		}
		// The replica that answered lags behind its leader.
		if !span.Sleep(ctx, fetchPause) {
			return fmt.Errorf("read to sequence %d of %d: %w", after, state.LastSeq, ctx.Err())
		}
	}
}

const (
	fetchPause = 20 * time.Millisecond
	fetchTries = 5
)

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

func (f *Follower) catchUpTo(ctx context.Context, sequence uint64) error {
	f.mu.Lock()
	position := f.position
	f.mu.Unlock()
	if position >= sequence {
		return nil
	}
	return f.check(ctx)
}

// infoCache keeps the last answers of stream leaders.
type infoCache struct {
	js jetstream.JetStream

	mu   sync.Mutex
	last map[string]*timedInfo // guarded by mu
}

func newInfoCache(js jetstream.JetStream) *infoCache {
	return &infoCache{js: js, last: make(map[string]*timedInfo)}
}

type timedInfo struct {
	asked    time.Time // before the request was sent
	received time.Time
	info     *jetstream.StreamInfo
}

func (i *infoCache) ask(ctx context.Context, stream string) (*timedInfo, error) {
	a := &timedInfo{asked: time.Now()}
	s, err := i.js.Stream(ctx, stream)
	i.mu.Lock()
	defer i.mu.Unlock()
	if err != nil {
		delete(i.last, stream)
		return nil, err
	}
	a.received, a.info = time.Now(), s.CachedInfo()
	// Concurrent answers may arrive out of order.
	if before := i.last[stream]; before == nil || a.asked.After(before.received) ||
		a.info.State.LastSeq >= before.info.State.LastSeq {
		i.last[stream] = a
	}
	return a, nil
}

func (i *infoCache) recent(ctx context.Context, stream string, within time.Duration) (*timedInfo, error) {
	i.mu.Lock()
	a := i.last[stream]
	i.mu.Unlock()
	if a != nil && time.Since(a.asked) < within {
		return a, nil
	}
	return i.ask(ctx, stream)
}
