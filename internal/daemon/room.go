package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"muster/internal/wire"
	"muster/provisioner/broker"
)

// JetStream has a limit of its own, far from the end of the disk: what is free
// on the disk says nothing about it. At the limit it refuses every write, to
// every stream. So there are marks below it, as there is one for the disk: at
// the first no new identities are let in, at the second only revocations are
// written.

// maxReserve bounds what is held back for revocations. At 1 KiB each, with the
// record and the list of revoked certificates that follow, it is good for ten
// thousand of them. Chosen.
const maxReserve = 64 << 20

// growEvery is how often a larger limit is looked for while the one in force is
// near: it takes a walk through the store's directory. Chosen.
const growEvery = 10 * time.Second

// measureTimeout is how long a look at what is stored, or free, may take: milliseconds
// unless the disk hangs, and what was measured too late is there for the next look. Chosen.
const measureTimeout = time.Second

// reserve is what of JetStream's limit is held back for revocations.
func reserve(limit int64) int64 { return min(maxReserve, limit/64) }

// limitMark is the low-water mark below JetStream's limit. What is configured
// is meant for the disk: of a much smaller limit it is at most a quarter. And it
// is above the reserve, or those on record were refused before the strangers.
func limitMark(configured size, limit int64) int64 {
	return max(min(lowWater(configured, space{total: limit}), limit/4), 2*reserve(limit))
}

// left is what may yet be stored, when the bounded streams have taken all that
// they may take.
func left(u broker.Usage) int64 { return u.Limit - u.Stored - u.Promised }

// checkLimit returns why JetStream's limit leaves too little, or nil; for low
// see [checkStorage].
func checkLimit(u broker.Usage, configured size, low bool) error {
	mark := limitMark(configured, u.Limit)
	want := mark
	if low {
		want += mark / 4
	}
	if left(u) >= want {
		return nil
	}
	return fmt.Errorf("the store has %s and may take %s, of which %s are for reports: no new identities until %s are left, after more of the disk is free",
		size(u.Stored).rough(), size(u.Limit).rough(), size(u.Promised).rough(), size(mark+mark/4).rough())
}

// lookAtSpace keeps the alarm about space, and tells the store how much it may
// write. While the disk does not answer, both stay as they are.
func (k *keeper) lookAtSpace(ctx context.Context) {
	k.lookAtLimit(ctx)
	bounded, cancel := context.WithTimeout(ctx, measureTimeout)
	defer cancel()
	s, err := k.weighing.do(bounded, func() (space, error) { return spaceOf(k.dir) })
	if errors.Is(err, errLate) {
		return
	}
	var cause error
	if err == nil { // else the disk's own trouble has an alarm of its own, see checkDisk
		cause = checkStorage(k.dir, s, k.lowWater, k.alarms.Stands(wire.CodeStorageLow) != nil)
	}
	for _, err := range []error{k.tight, k.refused} {
		switch {
		case err == nil:
		case cause == nil:
			cause = err
		default:
			cause = fmt.Errorf("%w; %w", cause, err)
		}
	}
	k.alarms.Set(ctx, wire.CodeStorageLow, cause)
}

// measure asks JetStream what it has stored. It waits for every write in hand, so that
// on a disk that hangs there is no answer; then what is known stays.
func (k *keeper) measure(ctx context.Context) (broker.Usage, error) {
	bounded, cancel := context.WithTimeout(ctx, measureTimeout)
	defer cancel()
	u, err := k.measuring.do(bounded, k.usage)
	switch {
	case err == nil:
		k.used.Store(&u)
	case !errors.Is(err, errLate):
		k.used.Store(nil)
	}
	return u, err
}

// lookAtLimit finds out how near JetStream's limit is, and has it raised if the
// disk has more by now. A broker that does not run says nothing new.
func (k *keeper) lookAtLimit(ctx context.Context) {
	if k.usage == nil {
		return
	}
	u, err := k.measure(ctx)
	if errors.Is(err, errLate) {
		k.trouble() // a write may be what it waits for
	}
	if err != nil {
		return
	}
	k.tight = checkLimit(u, k.lowWater, k.tight != nil)
	// A store that is away is restarted for that, which looks at the disk anew.
	if k.tight != nil && k.alarms.Stands(wire.CodeStoreUnavailable) == nil && k.grow(ctx) {
		if u, err = k.measure(ctx); err != nil {
			return
		}
		k.tight = checkLimit(u, k.lowWater, true)
	}
	k.setRoom(left(u) - reserve(u.Limit))
}

// grow restarts the broker if its limit would be larger by a good part and
// enough for the alarm to end, and reports whether it did. Anything less is not
// worth the connections of the fleet, and would come again and again as the
// disk fills up.
func (k *keeper) grow(ctx context.Context) bool {
	if k.usage == nil || !k.grown.IsZero() && time.Since(k.grown) < growEvery {
		return false
	}
	k.grown = time.Now()
	u, err := k.measure(ctx)
	if err != nil {
		return false
	}
	bounded, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	limit, err := k.limiting.do(bounded, k.limit)
	if err != nil || limit-u.Limit < 4*limitMark(k.lowWater, u.Limit) {
		return false
	}
	larger := u
	larger.Limit = limit
	if checkLimit(larger, k.lowWater, true) != nil {
		return false
	}
	if k.diskOf(ctx) != nil {
		return false // JetStream would not start on it
	}
	k.log.WarnContext(ctx, "broker restarting, its disk has room for a larger store", "limit", size(u.Limit).rough(), "now", size(limit).rough())
	k.replace(ctx)
	return true
}

// full takes in that the store is well and has no room: no restart gives it any
// unless the limit is larger then.
func (k *keeper) full(ctx context.Context, err error) {
	k.silent, k.restarts, k.refused = 0, 0, err
	k.alarms.Raise(ctx, wire.CodeStorageLow, err)
	if k.grow(ctx) { // not if the broker is not ours: there is no usage to know
		return
	}
	if said := k.broken.Load(); said != nil {
		// A stream of reports could not be made anew after a restart; whether the
		// records are ours was not looked at then.
		bounded, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		if err := k.reopen(bounded); err != nil {
			k.alarms.Raise(ctx, wire.CodeStoreUnavailable, err)
			return
		}
		k.broken.CompareAndSwap(said, nil)
	}
	k.alarms.Clear(ctx, wire.CodeStoreUnavailable)
}

// diskOf is [keeper.checkDisk] for as long as a probe may take.
func (k *keeper) diskOf(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return k.checkDisk(bounded)
}
