package provisioner

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"muster/internal/span"
	"muster/internal/wire"
	"muster/provisioner/events"
	"muster/provisioner/trust"
)

// An enforcement applies revocations to records. It is safe for concurrent use.
type enforcement struct {
	*Provisioner

	wake chan struct{} // capacity 1

	mu      sync.Mutex
	running bool                       // guarded by mu; false while no node is connected yet
	due     map[wire.Identity]struct{} // guarded by mu

	also atomic.Pointer[func(context.Context, wire.Identity) error] // see [Provisioner.AlsoEnforce]
}

func newEnforcement(p *Provisioner) *enforcement {
	return &enforcement{Provisioner: p, wake: make(chan struct{}, 1), due: make(map[wire.Identity]struct{})}
}

// applied queues a new entry of the log for its record.
func (e *enforcement) applied(r *trust.Revocation) {
	if r.Node == "" || r.Kind == trust.RevokedService {
		return
	}
	if e.EnforceSoon(r.Node) {
		e.cfg.Kick(r.Node)
	}
}

// AlsoEnforce has each identity passed to also after its record is enforced, and again after an error.
func (p *Provisioner) AlsoEnforce(also func(context.Context, wire.Identity) error) {
	p.enforcing.also.Store(&also)
}

// EnforceSoon queues an identity for [Provisioner.Run], and reports whether that runs.
func (p *Provisioner) EnforceSoon(id wire.Identity) (running bool) {
	defer func() {
		select {
		case p.enforcing.wake <- struct{}{}:
		default: // already signaled
		}
	}()
	return p.enforcing.put(id)
}

func (e *enforcement) put(id wire.Identity) (running bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.due[id] = struct{}{}
	return e.running
}

func (e *enforcement) take() []wire.Identity {
	e.mu.Lock()
	defer e.mu.Unlock()
	ids := slices.Collect(maps.Keys(e.due))
	clear(e.due)
	e.running = true
	return ids
}

const (
	enforceTimeout = 5 * time.Second

	// enforcePause grows with each round: after a conflict, the other write may not be readable at once.
	enforcePause = 10 * time.Millisecond

	enforceAgain = time.Second
)

// enforceAll runs in every provisioner, so that the work of a stopped one is completed.
func (e *enforcement) enforceAll(ctx context.Context) error {
	failed := false
	for {
		var again <-chan time.Time
		for _, id := range e.take() {
			err := e.enforceBoth(ctx, id)
			if ctx.Err() != nil {
				return nil
			}
			if err != nil {
				e.put(id)
				again = time.After(enforceAgain)
			}
			if err != nil && !failed {
				e.cfg.Log.WarnContext(ctx, "revocation not enforced on records yet; it is in force nevertheless",
					"node", id, "err", err)
			}
			failed = err != nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-e.wake:
		case <-again:
		}
	}
}

func (e *enforcement) enforceBoth(ctx context.Context, id wire.Identity) error {
	finishing, end := Finishing(ctx)
	defer end()
	bounded, cancel := context.WithTimeout(finishing, enforceTimeout)
	defer cancel()
	err := e.Enforce(bounded, id)
	if also := e.also.Load(); also != nil {
		err = errors.Join(err, (*also)(bounded, id))
	}
	return err
}

// Enforce makes the record of an identity revoked or retired, as the newest entry about it says. The record names the
// newest entry applied, so that an old entry does not hit a later owner.
func (p *Provisioner) Enforce(ctx context.Context, id wire.Identity) error {
	for round := range maxRounds {
		err := p.enforcing.enforceOnce(ctx, id)
		if !errors.Is(err, errAgain) {
			return err
		}
		if !span.Sleep(ctx, time.Duration(round)*enforcePause) {
			return ctx.Err()
		}
	}
	return errAgain
}

func (e *enforcement) enforceOnce(ctx context.Context, id wire.Identity) error {
	record, after, err := e.cfg.Store.Record(ctx, id)
	if err != nil || record == nil {
		return err
	}
	if err := e.SyncRevocations(ctx, record); err != nil {
		return err
	}
	entry, newest := e.revocations.About(id)
	if !applies(entry, record) {
		return nil
	}
	// This revision may be newer than the entry, or restored. The log must name its certificates and keys too.
	want := EntryAbout(entry.Kind, record, e.now(), trust.Cause{By: entry.By, Why: entry.Why})
	want.Awaiting = entry.Awaiting
	if e.revocations.Lacks(want) {
		if err := e.revocations.Put(ctx, want, newest); err != nil && !errors.Is(err, trust.ErrConflict) {
			return err
		}
		return errAgain
	}
	next := *record
	next.State, next.Revoked, next.UpdatedAt, next.Attempt = StateRevoked, entry.ID, e.now(), wire.NewID()
	next.Operator = &trust.Cause{By: entry.By, Why: entry.Why}
	event := events.Revoked
	if entry.Kind == trust.RetiredNode {
		next.State, next.Current, next.Next, next.Awaiting = StateRetired, nil, nil, entry.Awaiting
		event = events.Retired
	}
	next.keepSuperseded(record, next.UpdatedAt)
	if err := e.records.publish(ctx, &next, after, nil); err != nil {
		return err
	}
	e.cfg.Emit(events.Event{
		Type:    event,
		Time:    e.moment(),
		Node:    string(id),
		By:      entry.By,
		Why:     entry.Why,
		Attempt: next.Attempt,
	})
	e.cfg.Log.InfoContext(ctx, "revocation applied", "node", id, "state", next.State, "by", entry.By, "why", entry.Why)
	return nil
}

func applies(entry *trust.Revocation, r *Record) bool {
	switch {
	case entry == nil, entry.ID == r.Revoked:
		return false
	case r.State == StateRetired:
		return r.Awaiting && entry.Kind == trust.RetiredNode && !entry.Awaiting
	case entry.Kind == trust.RetiredNode:
		return true
	}
	return r.State != StateRevoked
}

// SyncRevocations reads the log again if the record names an entry unknown to this process. r may be nil.
func (p *Provisioner) SyncRevocations(ctx context.Context, r *Record) error {
	if r == nil || r.Revoked == "" || p.revocations.Knows(r.Revoked) {
		return nil
	}
	return p.logs.Sync(ctx)
}

// EntryAbout returns a new entry that revokes or retires the identity, with all unexpired certificates.
func EntryAbout(kind trust.RevocationKind, r *Record, now time.Time, c trust.Cause) *trust.Revocation {
	e := trust.NewRevocation(kind, now, c)
	e.Node = r.Identity
	var after Record // without certificates: all of r's are superseded
	after.keepSuperseded(r, now)
	e.Certificates = after.Superseded
	if kind == trust.RetiredNode {
		return e
	}
	e.Keys = r.Keys()
	return e
}

// Keys returns the hashes of all keys that the identity has had.
func (r *Record) Keys() []string {
	keys := slices.Clone(r.Lineage)
	for _, i := range []*Issued{r.Current, r.Next} {
		if i != nil && !slices.Contains(keys, i.KeyHash) {
			keys = append(keys, i.KeyHash)
		}
	}
	return keys
}
