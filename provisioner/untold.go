package provisioner

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"muster/internal/wire"
)

// An untold remembers what operators have ordered and of which nobody has told yet, since it
// is not known whether the store has it: who asks again finds that nothing is left to do, and
// no other process tells of it. What it remembers ends with the process, as events that wait
// for the store do. The zero value is ready. Safe for concurrent use.
type untold struct {
	mu   sync.Mutex
	open map[string]unknownOrder // guarded by mu: by what would be written
}

// An unknownOrder may be in the store, or may yet be.
type unknownOrder struct {
	tell    func()
	written func(context.Context) (bool, error) // nil where somebody follows what is written
	since   time.Time                           // when the write was given up; monotonic. Zero while it is made
}

// untoldFor is how long an order that is not in the store may come to be there after all:
// what it was waiting in is given up by then. Chosen. An order ends by it once a well store
// was read later than that, and did not have it. So this bounds what is remembered, 500 bytes each: the
// orders that were not acknowledged in so long, or since the store could last be read.
const untoldFor = 5 * time.Minute

// over reports whether an order that a store does not have which was read at that time, or
// later, will not be there.
func (o *unknownOrder) over(read time.Time) bool {
	return !o.since.IsZero() && read.Sub(o.since) > untoldFor
}

// write has put write what key says, and tells of it once it is in the store: now, or if put
// does not know that, when there is called, or written says that it is. After
// [ErrConflict] or [ErrStoreFull] it is not.
func (u *untold) write(key string, tell func(), written func(context.Context) (bool, error), put func() error) error {
	u.take(key, unknownOrder{tell: tell, written: written})
	err := put()
	switch {
	case err == nil:
		u.there(key)
	case notTaken(err):
		u.forget(key)
	default:
		u.unknown(key)
	}
	return err
}

// writeEntry is write of an entry of a log whose followers call thereEntry.
func (u *untold) writeEntry(entry any, tell func(), put func() error) error {
	return u.write(entryKey(entry), tell, nil, put)
}

// remember takes in what there is to tell once key is in the store, which has not said so.
func (u *untold) remember(key string, tell func(), written func(context.Context) (bool, error)) {
	u.take(key, unknownOrder{tell: tell, written: written, since: time.Now()})
}

// take takes in an order.
func (u *untold) take(key string, o unknownOrder) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.open == nil {
		u.open = make(map[string]unknownOrder)
	}
	u.open[key] = o
}

// unknown takes in that the store has not said whether it has an order, which somebody who
// follows it may have met and told of.
func (u *untold) unknown(key string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if o, open := u.open[key]; open {
		o.since = time.Now()
		u.open[key] = o
	}
}

// read takes in that who follows a well store has read all that it had to its end, and began
// then: orders that were not met and are old are not there.
func (u *untold) read(began time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.DeleteFunc(u.open, func(_ string, o unknownOrder) bool { return o.written == nil && o.over(began) })
}

// forget takes in that there is nothing to tell.
func (u *untold) forget(key string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.open, key)
}

// there takes in that something is on the store's disk, and tells of it if it is one of the
// orders and nobody has yet.
func (u *untold) there(key string) {
	u.mu.Lock()
	o, open := u.open[key]
	delete(u.open, key)
	u.mu.Unlock()
	if open {
		o.tell()
	}
}

// thereEntry is there for what writeEntry has written. Nearly always it is nobody's here.
func (u *untold) thereEntry(entry any) {
	u.mu.Lock()
	none := len(u.open) == 0
	u.mu.Unlock()
	if !none {
		u.there(entryKey(entry))
	}
}

// entryKey is an entry as the store has it: two of one second that say the same are one.
func entryKey(entry any) string {
	b, _ := json.Marshal(entry) // entries are plain data
	return string(b)
}

// ask asks for the orders that nobody follows.
func (u *untold) ask(ctx context.Context) {
	u.mu.Lock()
	open := maps.Clone(u.open)
	u.mu.Unlock()
	for key, o := range open {
		if o.written == nil {
			continue
		}
		asked := time.Now()
		bounded, cancel := context.WithTimeout(ctx, lookTimeout)
		written, err := o.written(bounded)
		cancel()
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			return // nor will the others be answered now
		case err != nil: // nobody knows yet
		case written:
			u.there(key)
		case o.over(asked):
			u.forget(key)
		}
	}
}

// askUntold tells of what is in the store by now. What a broken one shows may not be on its
// disk.
func (p *Provisioner) askUntold(ctx context.Context) {
	if p.cfg.StoreBroken() == nil {
		p.untold.ask(ctx)
	}
}

// rememberRevocation takes in that an entry may be in the log of revocations, or will be.
func (p *Provisioner) rememberRevocation(e *Revocation, tell func()) {
	p.untold.remember(e.ID, tell, func(context.Context) (bool, error) {
		if p.revocations.waits(e.ID) {
			return false, ErrPending // however long it takes
		}
		return p.revocations.stored(e.ID), nil // or it was left out
	})
}

// mayBeWritten reports whether a record may be in the store, or will be, after so many tries of which
// the last ended with err. A store that has no room says so to each node that asks, for
// as long as it has none: there is nothing to remember of that.
func mayBeWritten(tries int, err error) bool {
	return tries > 1 || tries == 1 && !notTaken(err)
}

// rememberConfirmed takes in that a record which confirms an offer may be in the store, or will
// be. The node may never say so again: it goes on to the next certificate by what it has.
func (p *Provisioner) rememberConfirmed(ctx context.Context, r *Record, e Event) {
	tell := func() {
		p.tellFormer(r)
		p.tellProvisioned(ctx, e)
	}
	p.untold.remember("confirmed "+r.Attempt, tell, func(ctx context.Context) (bool, error) {
		newest, _, err := p.cfg.Store.Record(ctx, r.Identity)
		return newest.confirmedBy(r), err
	})
}

// confirmedBy reports whether what the record, which may be nil, has as its current certificate was
// confirmed by that earlier revision: it is that one, or was written over it. When a certificate was
// confirmed stays on the record until the next one is.
func (r *Record) confirmedBy(earlier *Record) bool {
	if r == nil || r.Current == nil || r.Current.Serial != earlier.Current.Serial || r.Current.Digest != earlier.Current.Digest {
		return false
	}
	return r.ProvisionedAt.Equal(earlier.ProvisionedAt)
}

// untoldRecords are the attempts to keep a node out of which this process was not told that
// they have written its record: as [untold]. The zero value is ready. Safe for concurrent use.
type untoldRecords struct {
	mu   sync.Mutex
	open map[wire.Identity][]unknownAttempt // guarded by mu: those that may have written the record, the oldest first
}

// An unknownAttempt is one, and since when it is over.
type unknownAttempt struct {
	id    string
	since time.Time // monotonic
}

// add takes in that an attempt may have written the record of an identity.
func (u *untoldRecords) add(id wire.Identity, attempt string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.open == nil {
		u.open = make(map[wire.Identity][]unknownAttempt)
	}
	u.open[id] = append(u.open[id], unknownAttempt{attempt, time.Now()})
}

// about reports whether some attempt may have written the record.
func (u *untoldRecords) about(id wire.Identity) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.open[id]) > 0
}

// wrote reports whether the record, which is on disk and was read then or later, is by one of
// these attempts. It says so once. None of the others can have written it then, or will; nor
// will those that have been over for [untoldFor], if it is by none.
func (u *untoldRecords) wrote(r *Record, read time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	open := u.open[r.Identity]
	ours := slices.ContainsFunc(open, func(a unknownAttempt) bool { return a.id == r.Attempt })
	open = slices.DeleteFunc(open, func(a unknownAttempt) bool { return ours || read.Sub(a.since) > untoldFor })
	if len(open) == 0 {
		delete(u.open, r.Identity)
	} else {
		u.open[r.Identity] = open
	}
	return ours
}

// forget takes in that none of these attempts has written the record, or will.
func (u *untoldRecords) forget(id wire.Identity) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.open, id)
}

// tellRevoked emits the event of an entry that is in the log of revocations.
func (p *Provisioner) tellRevoked(ctx context.Context, e Event) {
	p.cfg.Emit(e)
	if e.Type == EventTokenRevoked {
		p.cfg.Log.InfoContext(ctx, "token revoked", "token_id", e.Token, "by", e.By, "why", e.Why)
		return
	}
	p.cfg.Log.InfoContext(ctx, "node retired", "node", e.Node, "by", e.By, "why", e.Why)
}

// tellKeptOut emits the event of a record that is on disk, which an entry has been written to.
func (p *Provisioner) tellKeptOut(ctx context.Context, r *Record) {
	event := EventRevoked
	if r.State == StateRetired {
		event = EventRetired
	}
	p.cfg.Emit(Event{Type: event, Time: p.moment(), Node: string(r.Identity), By: r.Operator.By, Why: r.Operator.Why, Attempt: r.Attempt})
	p.cfg.Log.InfoContext(ctx, "node kept out", "node", r.Identity, "state", r.State, "by", r.Operator.By, "why", r.Operator.Why, "revision", uint64(r.RevokedThrough))
}
