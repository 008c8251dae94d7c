package provisioner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"muster/internal/span"
	"muster/internal/wire"
	"muster/provisioner/trust"
)

// A cluster that lost a leader writes again after 4 to 9 s (measured).
const (
	publishBackoff    = 50 * time.Millisecond
	publishBackoffMax = 2 * time.Second
)

// errNotWritten is errAgain while no write of the attempt is under way: its first write was a conflict.
var errNotWritten = fmt.Errorf("%w: nothing was written", errAgain)

type records struct{ *Provisioner }

// publish writes r if its identity's newest revision is still the given one, and returns once r is on disk. The error
// is errAgain if another write came first, else a refusal. before, if not nil, runs before each try.
//
// If the outcome is unknown, it reads the record. If that is r, only the acknowledgement was lost. If the newest
// revision is still the given one, it writes the same bytes again: should the first write arrive late, one of them is a
// conflict. If a lagging cluster member answers the read, the attempt signs again and may find its own first write: its
// id alone does not prove that a record is r. An acknowledged record must not be changed.
func (w *records) publish(ctx context.Context, r *Record, after trust.Revision, before func() error) error {
	if err := r.Check(); err != nil {
		return refuse(wire.CodeUnavailable, err)
	}
	wait, first := publishBackoff, true
	for {
		if err := w.checkStore(); err != nil {
			return err
		}
		if before != nil {
			if err := before(); err != nil {
				return err
			}
		}
		revision, err := w.cfg.Store.Put(ctx, r, after)
		if err == nil {
			w.recent.Put(r.Identity, remembered{r, revision, w.now()})
			return nil
		}
		newest, revision, rerr := w.cfg.Store.Record(ctx, r.Identity)
		switch {
		case rerr == nil && newest != nil && newest.carries(r):
			return nil
		case errors.Is(err, trust.ErrConflict) && first:
			return errNotWritten
		case rerr == nil && (revision != after || errors.Is(err, trust.ErrConflict)):
			return errAgain
		case errors.Is(err, trust.ErrStoreFull):
			// Only an operator can make room.
			return refuse(StoreCode(err), err)
		}
		first = false
		w.cfg.Log.WarnContext(ctx, "record not acknowledged", "node", r.Identity, "revision", uint64(after), "err", err)
		if !span.Sleep(ctx, wait) {
			return refuse(wire.CodeStoreUnavailable, fmt.Errorf("write record: outcome unknown: %w", err))
		}
		wait = min(2*wait, publishBackoffMax)
	}
}

func (r *Record) carries(w *Record) bool {
	same := func(a, b *Issued) bool {
		if a == nil || b == nil {
			return a == b
		}
		return a.Serial == b.Serial && a.Digest == b.Digest
	}
	return r.Attempt == w.Attempt && r.State == w.State && same(r.Current, w.Current) && same(r.Next, w.Next)
}

const (
	// A record takes 2 kB. Nodes confirm within seconds, and 140,000 nodes a minute are 2,300 a second.
	maxRecent = 8192

	recentFor = 30 * time.Second
)

// A remembered record saves confirmations a read. It is good only for a write under compare-and-set, and until
// [recentFor]: after a restore the revision may belong to another record.
type remembered struct {
	record   *Record
	revision trust.Revision
	at       time.Time
}

// recall returns a recent record, or nil. Abs: the clock may have been set back.
func (w *records) recall(id wire.Identity) (*Record, trust.Revision) {
	m, _ := w.recent.Get(id)
	if w.now().Sub(m.at).Abs() > recentFor {
		return nil, 0
	}
	return m.record, m.revision
}
