package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"muster/internal/disk"
	"muster/internal/span"
	"muster/internal/wire"
	"muster/provisioner/backup"
	"muster/provisioner/broker"
)

// At 3 KiB a record, 512 MiB are 170,000 renewals.
const maxLowWater = 512 << 20

func lowWater(configured disk.Size, s disk.Space) int64 {
	if configured > 0 {
		return int64(configured)
	}
	return min(maxLowWater, s.Total/20)
}

// enough compares with a mark that is a quarter higher while the alarm is set (low), so that the alarm does not flap.
func enough(free, mark int64, low bool) bool {
	if low {
		mark += mark / 4
	}
	return free >= mark
}

func checkStorage(dir string, s disk.Space, configured disk.Size, low bool) error {
	mark := lowWater(configured, s)
	if !enough(s.Free, mark, low) {
		return fmt.Errorf("%s has %s free, below the mark of %s (store.low_water): no new nodes until %s are free",
			dir, disk.Size(s.Free), disk.Size(mark), disk.Size(mark+mark/4))
	}
	return nil
}

// A disk of 1 GB/s fills 512 MiB in half a second at worst; enrollment takes minutes.
const storageInterval = 2 * time.Second

// JetStream refuses every write at its limit, far below the size of the disk. So new nodes are refused at a first
// mark, and at a second only revocations are written.

// maxReserve has room for over ten thousand revocations (1 KiB) with their records (3 KiB).
const maxReserve = 64 << 20

func reserve(limit int64) int64 { return min(maxReserve, limit/64) }

// limitMark caps the mark for the disk at a quarter of the limit. The mark exceeds the reserve, or known nodes would be
// refused before new ones.
func limitMark(configured disk.Size, limit int64) int64 {
	return max(min(lowWater(configured, disk.Space{Total: limit}), limit/4), 2*reserve(limit))
}

// remaining counts bounded streams as full.
func remaining(u broker.Usage) int64 { return u.Limit - u.Stored - u.Promised }

func checkLimit(u broker.Usage, configured disk.Size, low bool) error {
	mark := limitMark(configured, u.Limit)
	if enough(remaining(u), mark, low) {
		return nil
	}
	return fmt.Errorf("the store uses %s of its limit of %s, of which %s are set aside for reports: no new nodes "+
		"until %s are free; "+
		"to raise the limit, free disk space and restart",
		disk.Size(u.Stored), disk.Size(u.Limit), disk.Size(u.Promised), disk.Size(mark+mark/4))
}

// While the disk does not answer, watchSpace changes neither alarm nor room.
func (k *monitor) watchSpace(ctx context.Context) error {
	tight := false // JetStream was near its limit
	return span.Every(ctx, storageInterval, func(ctx context.Context) {
		low := k.alarms.Stands(wire.CodeStorageLow) != nil
		var errs []error
		dir := k.cfg.DataDir // with external brokers, only the journal is on this disk
		if k.embedded != nil {
			dir = k.cfg.StoreDir()
		}
		if s, err := disk.SpaceOf(dir); err == nil {
			k.free.Store(s.Free)
			errs = append(errs, checkStorage(dir, s, k.lowWater, low))
		}
		if k.embedded != nil {
			if u, err := k.embedded.Usage(); err == nil {
				k.used.Store(&u)
				err := checkLimit(u, k.lowWater, tight)
				tight = err != nil
				errs = append(errs, err)
				k.Store().SetRoom(remaining(u) - reserve(u.Limit))
			}
		}
		if full := k.full.Load(); full != nil {
			errs = append(errs, *full)
		}
		k.alarms.Set(ctx, wire.CodeStorageLow, errors.Join(errs...))
	})
}

// Backup writes a backup to w while requests go on; the log names by. started is called first, with the approximate
// number of messages.
func (d *Daemon) Backup(ctx context.Context, by string, started func(messages uint64), w io.Writer) error {
	s := d.Store()
	if s == nil {
		return errNotOpen
	}
	messages, err := s.Pending(ctx)
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	header := backup.Header{
		ID:            wire.NewID(),
		Installation:  s.Installation().ID,
		CAFingerprint: s.Installation().CAFingerprint,
		StartedAt:     d.opts.Now().UTC().Truncate(time.Second),
		By:            by,
	}
	started(messages)
	// A backup of a store that lost data would look complete.
	if err := s.CheckWatermark(ctx); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	b, err := backup.NewWriter(w, header)
	if err == nil {
		err = s.Export(ctx, b.Message)
	}
	var summary *backup.Summary
	if err == nil {
		summary, err = b.Close(d.opts.Now().UTC().Truncate(time.Second))
	}
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	d.opts.Log.InfoContext(ctx, "backup made", "backup", header.ID, "by", by, "messages", summary.Messages())
	return nil
}
