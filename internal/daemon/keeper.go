package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/broker"
	"muster/provisioner/store"
)

// Times of the keeper; chosen, but for what is said.
const (
	keepEvery  = time.Second
	probeEvery = 10 * time.Second // of a store that nobody complains about

	// probeTimeout is how long a write may take before the store counts as
	// away: 4,096 writes in hand take four seconds on the slowest disk measured.
	probeTimeout = 5 * time.Second

	// wholeTimeout is how long a list of streams may take: it is asked for beside each probe, which
	// tells if nobody answers. Chosen, it takes milliseconds.
	wholeTimeout = time.Second

	// maxSilent is how many probes in a row stay unanswered before the broker is
	// restarted although nothing else says that it is broken.
	maxSilent = 3

	restartTimeout    = time.Minute
	restartBackoffMax = time.Minute

	// maxHung is how many restarts in a row may find that the server before has not ended, or
	// that the new one does not come up, on a disk that can be written, until the process
	// ends. Nothing is served then anyway; whoever looks after the process starts another
	// one, and nothing acknowledged is lost.
	maxHung = 3

	// maxShorter is how many looks in a row must find a log shorter than it was until that
	// counts: a cluster's new leader may be behind for a moment. Chosen, seconds. As many must
	// miss a stream of records.
	maxShorter = 3
)

// A keeper watches what the provisioner depends on, raises and clears the
// alarms about it, and restarts the broker where nothing else helps: a
// JetStream that met a full or read-only disk does not write again by itself
// once the disk is mended.
type keeper struct {
	// Set by newKeeper, then read-only.
	dir      string // of the store
	lowWater size
	alarms   *provisioner.Alarms
	log      *slog.Logger
	probe    func(context.Context) error
	wrote    func() bool // whether the store has acknowledged a write just now
	report   func(context.Context, provisioner.Event) error
	restart  func(context.Context) error  // nil if the broker is not ours
	reopen   func(context.Context) error  // whether the store is still ours after a restart
	whole    func(context.Context) error  // whether all streams of records are there; nil if nobody else could delete one
	returns  func() uint64                // how often the connection to others' brokers has come back; nil if the broker is ours
	watched  map[wire.Code]func() error   // states that are looked at each second
	usage    func() (broker.Usage, error) // of JetStream; nil if there is none to look at. It blocks while the disk hangs
	limit    func() (int64, error)        // what a restart would make JetStream's limit
	setRoom  func(int64)                  // of the store

	nudged chan struct{}         // of one: somebody had trouble with the store
	broken atomic.Pointer[error] // what the broker said of a write that failed; nil if none did

	used atomic.Pointer[broker.Usage] // what JetStream had stored when it said so last; nil if it does not run

	// Only touched by the goroutine of run.
	writing    diskCall[struct{}] // a disk check
	probing    diskCall[struct{}]
	delivering diskCall[struct{}]
	measuring  diskCall[broker.Usage]
	weighing   diskCall[space] // of the disk
	limiting   diskCall[int64]
	looked     time.Time // when the space was looked at
	probed     time.Time // when the store was probed
	unreported bool      // events of alarms are left over, and the log says so
	silent     int       // probes in a row that failed
	restarts   int       // in a row, without a good probe
	restarted  time.Time
	returned   uint64    // returns, when the store was found to be still ours
	shorter    int       // times in a row that the store had lost the end of a log
	missing    int       // times in a row that a stream of records was gone
	over       error     // why only another process helps
	hung       int       // restarts in a row that found a server that hangs
	tight      error     // JetStream is near its limit, when it was looked at last
	refused    error     // the store had no room for the last probe
	grown      time.Time // when a larger limit was looked for
}

// trouble has the store looked at soon. It does not block.
func (k *keeper) trouble() {
	select {
	case k.nudged <- struct{}{}:
	default: // somebody has said so
	}
}

// writeFailed takes in that the broker could not write a stream, and will not
// by itself. It does not block.
func (k *keeper) writeFailed(err error) {
	k.broken.Store(&err)
	k.trouble()
}

// storeBroken returns what the broker said of a write that failed, or nil. Of
// what it shows then, nobody knows whether it is on disk. It does not block.
func (k *keeper) storeBroken() error {
	if err := k.broken.Load(); err != nil {
		return *err
	}
	return nil
}

// run watches until ctx is done, and returns nil. The error says that only the end of
// the process helps.
func (k *keeper) run(ctx context.Context) error {
	tick := time.NewTicker(keepEvery)
	defer tick.Stop()
	nudged := false
	for {
		k.look(ctx, nudged)
		if k.hung >= maxHung {
			return fmt.Errorf("the broker's %w, after %d times %v: the provisioner ends, to be started again", broker.ErrHangs, k.hung, restartTimeout)
		}
		if k.over != nil {
			return fmt.Errorf("%w: the provisioner ends, to be started again", k.over)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			nudged = false
		case <-k.nudged:
			nudged = true
		}
	}
}

// look looks at everything that is due.
func (k *keeper) look(ctx context.Context, nudged bool) {
	for code, state := range k.watched {
		k.alarms.Keep(ctx, code, state)
	}
	if nudged || k.broken.Load() != nil || k.silent > 0 || k.missing > 0 || time.Since(k.probed) >= probeEvery {
		k.keepStore(ctx)
		k.probed = time.Now()
	}
	if time.Since(k.looked) >= storageEvery {
		k.looked = time.Now()
		k.lookAtSpace(ctx)
	}
	if k.alarms.Stands(wire.CodeStoreUnavailable) == nil {
		k.deliver(ctx)
	}
}

// keepStore finds out whether the store can be written, and does what can be
// done if not. Every step may be the last: the next look begins at the first.
func (k *keeper) keepStore(ctx context.Context) {
	err := k.ask(ctx)
	if gone := k.gone(ctx); gone != nil {
		err = gone // a write to a stream that is gone is one without an answer
		if errors.Is(err, store.ErrShorter) {
			k.over = err // as in open
		}
	}
	if returned := k.hasReturned(); err == nil && k.restart == nil && (k.silent > 0 || returned != k.returned) {
		// What was away may have come back as another, or empty, or without its end; if that
		// took no longer than a probe waits, no probe has failed.
		if err = k.open(ctx); err != nil {
			k.alarms.Raise(ctx, wire.CodeStoreUnavailable, err)
			k.silent = max(k.silent, 1) // looked at again at once, and not with the next probe that is due
			return
		}
		k.returned = returned
	}
	if err == nil {
		k.silent, k.restarts, k.refused = 0, 0, nil
		k.alarms.Clear(ctx, wire.CodeStoreUnavailable)
		return
	}
	if ctx.Err() != nil {
		return
	}
	if errors.Is(err, provisioner.ErrStoreFull) {
		k.full(ctx, err)
		return
	}
	k.silent++
	disk := k.diskOf(ctx)
	if disk != nil {
		err = fmt.Errorf("%w; %w", disk, err)
	}
	k.alarms.Raise(ctx, wire.CodeStoreUnavailable, err)
	if k.restart == nil || disk != nil || k.broken.Load() == nil && k.silent < maxSilent {
		return // nothing to gain yet, or nothing proven
	}
	if wait := min(time.Second<<min(k.restarts, 10), restartBackoffMax); k.restarts > 0 && time.Since(k.restarted) < wait {
		return
	}
	k.restarts++
	k.restarted = time.Now()
	k.log.WarnContext(ctx, "broker restarting, its disk can be written again", "err", err)
	k.replace(ctx)
}

// replace restarts the broker and looks whether the store is still ours.
func (k *keeper) replace(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, restartTimeout)
	defer cancel()
	before := k.broken.Load()
	err := k.restart(bounded)
	if errors.Is(err, broker.ErrHangs) {
		k.hung++
	} else {
		k.hung = 0
	}
	if err != nil {
		if ctx.Err() == nil {
			k.alarms.Raise(ctx, wire.CodeStoreUnavailable, err)
			k.writeFailed(err) // nothing runs: that needs no further proof
		}
		return
	}
	k.broken.CompareAndSwap(before, nil) // what the new server cannot write it says once, perhaps by now
	if err := k.open(bounded); err != nil {
		k.writeFailed(err)
		return
	}
	k.trouble()
}

// open looks whether the store is still ours. Where what it has lost is in our journal, the
// next start puts that back, and nothing else does.
func (k *keeper) open(ctx context.Context) error {
	err := k.reopen(ctx)
	if !errors.Is(err, store.ErrShorter) {
		k.shorter = 0
	} else if k.shorter++; k.shorter == maxShorter {
		k.over = err
	}
	return err
}

// gone returns which stream of records is gone, once several looks in a row have missed it. A probe
// writes to one of them only, and who lacks another one is refused for a reason that would be told
// to nobody else.
func (k *keeper) gone(ctx context.Context) error {
	if k.whole == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, wholeTimeout)
	defer cancel()
	err := k.whole(ctx)
	if err == nil {
		k.missing = 0
	} else if k.missing++; k.missing >= maxShorter {
		return err
	}
	return nil
}

// hasReturned is how often the connection has come back, 0 if that is of no interest.
func (k *keeper) hasReturned() uint64 {
	if k.returns == nil {
		return 0
	}
	return k.returns()
}

// ask returns why the store cannot be written: what the broker said, or else
// what a write of our own meets.
func (k *keeper) ask(ctx context.Context) error {
	if err := k.storeBroken(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	err := run(ctx, &k.probing, k.probe)
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, provisioner.ErrStoreFull) && k.wrote():
		// In a storm at three brokers on two cores ours took 4 to 5 s (measured), and a
		// provisioner that held that for the end of its store turned everybody away.
		return nil
	}
	return fmt.Errorf("no answer to a write: %w", err)
}

// deliver writes the events of alarms that the store has missed. What it cannot
// write now is tried again with the next look.
func (k *keeper) deliver(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	err := run(bounded, &k.delivering, func(ctx context.Context) error { return k.alarms.Deliver(ctx, k.report) })
	if failed := err != nil && ctx.Err() == nil; failed != k.unreported {
		k.unreported = failed
		if failed {
			k.log.WarnContext(ctx, "alarms not reported to the store", "err", err)
		}
	}
}
