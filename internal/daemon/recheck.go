package daemon

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"muster/internal/span"
	"muster/internal/wire"
	"muster/provisioner/broker"
)

const (
	// One check covers a wave of renewals, and the reply to a confirmation leaves before its connection is dropped.
	batchDelay = 100 * time.Millisecond

	// The pause after a check is twice its duration, since external brokers list their connections for each check.
	maxRecheckPause = time.Second

	recheckRetry    = time.Second
	recheckInterval = 5 * time.Minute
)

// A rechecker drops connections of nodes that are no longer admitted. It checks given nodes, and all nodes at the
// start, after a broker was away and every five minutes.
type rechecker struct {
	some  func(ctx context.Context, ids ...wire.Identity) error
	every func(ctx context.Context) error
	log   *slog.Logger

	// An external broker may list a connection only this long after admitting it.
	later time.Duration

	mu      sync.Mutex
	waiting map[wire.Identity]bool // guarded by mu
	wake    chan struct{}          // capacity 1
	wakeAll chan struct{}          // capacity 1
}

func newRechecker(l *link, log *slog.Logger) *rechecker {
	later := time.Duration(0)
	if l.external != nil {
		later = broker.AdmissionInFlight
	}
	return &rechecker{
		some:    l.Recheck,
		every:   l.RecheckAll,
		log:     log,
		later:   later,
		waiting: make(map[wire.Identity]bool),
		wake:    make(chan struct{}, 1),
		wakeAll: make(chan struct{}, 1),
	}
}

func (r *rechecker) add(ids ...wire.Identity) {
	r.queue(ids)
	if r.later > 0 {
		time.AfterFunc(r.later, func() { r.queue(ids) })
	}
}

func (r *rechecker) all() { signal(r.wakeAll) }

func (r *rechecker) queue(ids []wire.Identity) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range ids {
		r.waiting[id] = true
	}
	signal(r.wake)
}

func (r *rechecker) take() []wire.Identity {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := slices.Collect(maps.Keys(r.waiting))
	clear(r.waiting)
	return ids
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (r *rechecker) run(ctx context.Context) error {
	var everybody sync.WaitGroup
	everybody.Go(func() { r.runAll(ctx) })
	defer everybody.Wait()
	pause := batchDelay
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
		}
		if !span.Sleep(ctx, pause) {
			return nil
		}
		ids, began := r.take(), time.Now()
		if len(ids) == 0 { // the last check covered them
			continue
		}
		err := r.some(ctx, ids...)
		pause = min(max(2*time.Since(began), batchDelay), maxRecheckPause)
		if err != nil && ctx.Err() == nil {
			r.log.WarnContext(ctx, "connections of some nodes not checked, retrying", "err", err)
			time.AfterFunc(recheckRetry, func() { r.queue(ids) })
		}
	}
}

// runAll has its own goroutine, since a full check can take minutes.
func (r *rechecker) runAll(ctx context.Context) {
	for next := batchDelay; ; {
		select {
		case <-ctx.Done():
			return
		case <-r.wakeAll:
			if !span.Sleep(ctx, batchDelay) { // servers appear together
				return
			}
		case <-time.After(next):
		}
		next = recheckInterval
		if err := r.every(ctx); err != nil && ctx.Err() == nil {
			r.log.WarnContext(ctx, "not all connections checked, retrying", "err", err)
			next = recheckRetry
		}
	}
}
