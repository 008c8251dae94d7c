package provisioner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"muster/provisioner/trust"

	"muster/internal/wire"
)

// Between two tries of a write whose outcome is unknown. A broker that lost its
// leader takes 4 to 9 s to write again (measured), so there is no hurry.
const (
	publishBackoff    = 50 * time.Millisecond
	publishBackoffMax = 2 * time.Second
)

// records writes records, and tells what ends with them.
type records struct{ *Provisioner }

// publish writes the record if its identity's newest revision is still after,
// and returns once the write is known to be on disk. It returns errAgain if
// somebody else's write came first, and a refusal if the outcome could not be
// learned before the context ended, or before the store was found to be away.
//
// An unknown outcome is cured by reading: if the newest record is what we wrote,
// the write happened and its acknowledgement was lost; if the newest
// is still after, the identical bytes are written again under the same
// condition. Should the first write arrive late, the second meets a conflict
// and finds it. Nothing is ever signed anew on the way.
//
// A member of a cluster that is behind may answer the read: then what we wrote is
// somebody else's write, and the attempt begins again, once more with what is
// behind perhaps, and signs anew. The write that it meets in the end carries our
// attempt, and another certificate than the one in hand: so the attempt alone does
// not tell (see [Record.carries]).
//
// A record that was acknowledged is remembered, and must not be changed any
// more (see [recent]).
//
// Right before each write, before is called if it is not nil; its error ends it.
func (w *records) publish(ctx context.Context, r *Record, after trust.Revision, before func() error) error {
	if err := checkNext(r); err != nil {
		return refuse(string(r.Identity), wire.CodeUnavailable, err)
	}
	wait, first := publishBackoff, true
	for {
		if err := w.writable(string(r.Identity)); err != nil {
			return err
		}
		if before != nil {
			if err := before(); err != nil {
				return err
			}
		}
		well, done := w.cfg.Alarms.Until(ctx, wire.CodeStoreUnavailable)
		revision, err := w.cfg.Store.Put(well, r, after)
		if err == nil {
			done()
			w.recent.remember(r, revision, w.now())
			return nil
		}
		done()
		newest, revision, rerr := w.cfg.Store.Record(ctx, r.Identity)
		switch {
		case rerr == nil && newest != nil && newest.carries(r):
			return nil
		case rerr == nil && revision != after, errors.Is(err, trust.ErrConflict) && (rerr == nil || first):
			// If it cannot be read, a first write that meets another one is still no
			// doubt: nothing of ours is under way. What begins again is refused then.
			return errAgain
		case errors.Is(err, trust.ErrStoreFull):
			// Room is made by people: the node comes back rather than wait for them.
			return refuse(string(r.Identity), storeCode(err), err)
		}
		first = false
		w.cfg.Log.WarnContext(ctx, "record not acknowledged", "node", r.Identity, "revision", uint64(after), "err", err)
		select {
		case <-ctx.Done():
			return refuse(string(r.Identity), wire.CodeStoreUnavailable, fmt.Errorf("write record: outcome unknown: %w", err))
		case <-time.After(wait):
			wait = min(2*wait, publishBackoffMax)
		}
	}
}

// carries reports whether r is what a write of w has left: by the same attempt,
// with the same certificates and configurations.
func (r *Record) carries(w *Record) bool {
	same := func(a, b *Issued) bool {
		if a == nil || b == nil {
			return a == b
		}
		return a.Serial == b.Serial && a.Digest == b.Digest
	}
	return r.Attempt == w.Attempt && r.State == w.State && same(r.Current, w.Current) && same(r.Next, w.Next)
}

// checkNext keeps a record that could not be read back from being written.
func checkNext(r *Record) error {
	if err := r.Check(); err != nil {
		return err
	}
	if r.Next != nil && len(r.Lineage) == 0 {
		return fmt.Errorf("record of %q: an offer without lineage", r.Identity)
	}
	return nil
}
