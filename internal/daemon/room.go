package daemon

import (
	"context"
	"errors"
	"fmt"

	"muster/internal/disk"
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

// reserve is what of JetStream's limit is held back for revocations.
func reserve(limit int64) int64 { return min(maxReserve, limit/64) }

// limitMark is the low-water mark below JetStream's limit. What is configured
// is meant for the disk: of a much smaller limit it is at most a quarter. And it
// is above the reserve, or those on record were refused before the strangers.
func limitMark(configured disk.Size, limit int64) int64 {
	return max(min(lowWater(configured, disk.Space{Total: limit}), limit/4), 2*reserve(limit))
}

// left is what may yet be stored, when the bounded streams have taken all that
// they may take.
func left(u broker.Usage) int64 { return u.Limit - u.Stored - u.Promised }

// checkLimit returns why JetStream's limit leaves too little, or nil; for low
// see [checkStorage].
func checkLimit(u broker.Usage, configured disk.Size, low bool) error {
	mark := limitMark(configured, u.Limit)
	want := mark
	if low {
		want += mark / 4
	}
	if left(u) >= want {
		return nil
	}
	return fmt.Errorf("the store has %s and may take %s, of which %s are for reports: no new identities until %s are left; a start with more of the disk free may take more",
		disk.Size(u.Stored), disk.Size(u.Limit), disk.Size(u.Promised), disk.Size(mark+mark/4))
}

// keepSpace keeps the alarm about space, and tells the store how much it may write, until ctx is
// done. While the disk does not answer, both stay as they are. It returns nil.
func (k *keeper) keepSpace(ctx context.Context) error {
	tight := false // JetStream was near its limit
	return every(ctx, storageEvery, func() {
		low := k.alarms.Stands(wire.CodeStorageLow) != nil
		var errs []error
		if s, err := disk.SpaceOf(k.dir); err == nil {
			errs = append(errs, checkStorage(k.dir, s, k.lowWater, low))
		}
		if k.usage != nil {
			if u, err := k.usage(); err == nil {
				k.used.Store(&u)
				err := checkLimit(u, k.lowWater, tight)
				tight = err != nil
				errs = append(errs, err)
				k.store().SetRoom(left(u) - reserve(u.Limit))
			}
		}
		if full := k.full.Load(); full != nil {
			errs = append(errs, *full)
		}
		k.alarms.Set(ctx, wire.CodeStorageLow, errors.Join(errs...))
	})
}
