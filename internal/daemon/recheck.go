package daemon

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"muster/internal/wire"
	"muster/provisioner/broker"
)

const (
	// gatherTime is how long nodes are gathered whose connections are to be checked again: a wave of renewals is one
	// check, and the reply to a confirmation has left over a connection before that is dropped.
	gatherTime = 100 * time.Millisecond

	// maxRecheckPause bounds the pause after a check, which is twice as long as the check took: brokers outside of the
	// process list their connections for it.
	maxRecheckPause = time.Second

	// recheckAgain is when a check that failed is made again, and recheckAll when all connections are checked.
	recheckAgain = time.Second
	recheckAll   = 5 * time.Minute
)

// A rechecker has the broker drop connections of nodes that would not be admitted any more: revoked, retired, and
// with a certificate that is superseded. It looks at the nodes that it is told of, and at all of them at the start,
// after a broker was away, and every five minutes. Make one with newRechecker.
type rechecker struct {
	some  func(ctx context.Context, ids ...wire.Identity) error
	every func(ctx context.Context) error
	log   *slog.Logger

	// later is when to check nodes once more, because a connection may appear so long
	// after it was admitted. 0 for brokers that show it at once.
	later time.Duration

	mu      sync.Mutex
	waiting map[wire.Identity]bool // guarded by mu
	wake    chan struct{}          // holds one signal while nodes wait
	wakeAll chan struct{}          // holds one signal while all are to be checked
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

// add has the connections of nodes checked soon. It does not block.
func (r *rechecker) add(ids ...wire.Identity) {
	r.queue(ids)
	if r.later > 0 {
		time.AfterFunc(r.later, func() { r.queue(ids) })
	}
}

// all has the connections of all nodes checked soon. It does not block.
func (r *rechecker) all() { signal(r.wakeAll) }

func (r *rechecker) queue(ids []wire.Identity) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range ids {
		r.waiting[id] = true
	}
	signal(r.wake)
}

// take returns the nodes that wait.
func (r *rechecker) take() []wire.Identity {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := slices.Collect(maps.Keys(r.waiting))
	clear(r.waiting)
	return ids
}

// signal wakes what receives from c, now or when it is done with what it does.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run checks until ctx is done. It returns nil.
func (r *rechecker) run(ctx context.Context) error {
	var everybody sync.WaitGroup
	everybody.Go(func() { r.runAll(ctx) })
	defer everybody.Wait()
	pause, failing := gatherTime, false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
		}
		if !sleep(ctx, pause) {
			return nil
		}
		ids, began := r.take(), time.Now()
		if len(ids) == 0 { // the last check had them
			continue
		}
		err := r.some(ctx, ids...)
		pause = min(max(2*time.Since(began), gatherTime), maxRecheckPause)
		if err != nil && ctx.Err() == nil {
			if !failing { // once, until it is over
				r.log.WarnContext(ctx, "connections of nodes not all checked, trying again", "err", err)
			}
			time.AfterFunc(recheckAgain, func() { r.queue(ids) })
		}
		failing = err != nil
	}
}

// runAll checks all connections until ctx is done. That takes minutes where the store is far and nodes are many, so
// nothing else waits for it.
func (r *rechecker) runAll(ctx context.Context) {
	for next := gatherTime; ; {
		select {
		case <-ctx.Done():
			return
		case <-r.wakeAll:
			if !sleep(ctx, gatherTime) { // servers appear together
				return
			}
		case <-time.After(next):
		}
		next = recheckAll
		if err := r.every(ctx); err != nil && ctx.Err() == nil {
			r.log.WarnContext(ctx, "connections not all checked, trying again", "err", err)
			next = recheckAgain
		}
	}
}

// sleep reports whether ctx is not done before the time has passed.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
