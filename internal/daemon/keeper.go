package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"muster/provisioner/trust"

	"muster/internal/disk"
	"muster/internal/wire"
	"muster/provisioner/broker"
	"muster/provisioner/events"
	"muster/provisioner/store"
)

const (
	keepEvery  = time.Second
	probeEvery = 10 * time.Second // of a store without an alarm

	// probeTimeout is how long a write may take before the store counts as away: in a storm at three brokers on two cores
	// one took 4 to 5 s (measured).
	probeTimeout = 10 * time.Second
)

// A keeper keeps the alarms about what the provisioner depends on. A store that has failed is not its
// business: the process ends, see [Daemon.Run].
type keeper struct {
	// Set by newKeeper, then read-only.
	dir      string // of the store
	lowWater disk.Size
	alarms   *events.Alarms
	log      *slog.Logger
	store    func() *store.Store
	fail     func(error)                  // ends the process without an orderly stop
	journal  func() error                 // why the journal has failed a write, nil if it has not
	watched  map[wire.Code]func() error   // states that are looked at each second
	usage    func() (broker.Usage, error) // of JetStream; nil if the broker is not ours

	stalled atomic.Pointer[error]        // why the store's disk does not answer; nil if it does
	full    atomic.Pointer[error]        // the store had no room for the last probe
	used    atomic.Pointer[broker.Usage] // what JetStream had stored when it said so last

}

// newKeeper returns the keeper of this daemon's broker and store.
func newKeeper(l *link, fail func(error)) *keeper {
	lowWater, _ := disk.ParseSize(l.cfg.Store.LowWater) // valid, or New would not have come here
	k := &keeper{
		dir:      l.cfg.StoreDir(),
		lowWater: lowWater,
		alarms:   l.alarms,
		log:      l.opts.Log,
		store:    l.Store,
		fail:     fail,
		journal:  l.journalFailed,
		watched: map[wire.Code]func() error{
			wire.CodeAuthorityExpired:        l.parts.authority.Usable,
			events.AlarmPolicyRefused:        l.parts.policy.Refused,
			wire.CodePaused:                  l.paused,
			events.AlarmRecovery:             l.inRecovery,
			events.AlarmBrokersMisconfigured: l.misconfigured,
		},
		usage: func() (broker.Usage, error) { return l.embedded.Usage() },
	}
	if l.cfg.Broker.URL != "" {
		k.dir, k.usage = l.cfg.DataDir, nil // the store's disks are others'; ours holds the journal
	}
	return k
}

// keepStates keeps the alarms of the states that are watched until ctx is done, and returns nil.
func (k *keeper) keepStates(ctx context.Context) error {
	return every(ctx, keepEvery, func() {
		for code, state := range k.watched {
			k.alarms.Keep(ctx, code, state)
		}
	})
}

// every calls what, and again after each d, until ctx is done. It returns nil.
func every(ctx context.Context, d time.Duration, what func()) error {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		what()
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// stall takes in why the store's disk does not answer, nil once it does. It does not block.
func (k *keeper) stall(ctx context.Context, err error) {
	if err == nil {
		k.stalled.Store(nil)
		return
	}
	k.stalled.Store(&err)
	k.alarms.Raise(ctx, wire.CodeStoreUnavailable, err) // a probe may wait as well
}

// keepStore keeps the alarm about a store that takes no writes until ctx is done. Its error is [store.ErrDamaged], of a store of our own that has lost data.
func (k *keeper) keepStore(ctx context.Context) error {
	var probed time.Time
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	err := every(ctx, keepEvery, func() {
		if err := k.journal(); err != nil {
			k.fail(err)
			return
		}
		if err := k.missing(ctx); err != nil {
			if errors.Is(err, store.ErrWatermark) {
				k.fail(err)
				return
			}
			k.alarms.Raise(ctx, wire.CodeStoreUnavailable, err)
			if k.usage != nil {
				end(err) // nothing that is on its disk may be built on
			}
			return
		}
		if k.alarms.Stands(wire.CodeStoreUnavailable) != nil || time.Since(probed) >= probeEvery {
			err := k.probe(ctx)
			if ctx.Err() != nil {
				return
			}
			k.alarms.Set(ctx, wire.CodeStoreUnavailable, err)
			probed = time.Now()
		}
	})
	if cause := context.Cause(ctx); errors.Is(cause, store.ErrDamaged) {
		return cause
	}
	return err
}

// missing returns what the store has lost, nil if it does not answer.
func (k *keeper) missing(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return k.store().CheckWatermark(ctx)
}

// probe returns why the store takes no writes, or nil. One that is full answers.
func (k *keeper) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	err := k.store().Probe(ctx)
	k.full.Store(nil)
	stalled := k.stalled.Load()
	switch {
	case stalled != nil:
		return *stalled
	case errors.Is(err, trust.ErrStoreFull):
		k.full.Store(&err)
		return nil
	case err != nil:
		return fmt.Errorf("no answer to a write: %w", err)
	}
	return nil
}
