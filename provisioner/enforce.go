package provisioner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"muster/internal/wire"
	"muster/provisioner/events"
	"muster/provisioner/trust"
)

// An enforcement has the records of identities follow the log of revocations.
// It is safe for concurrent use.
type enforcement struct {
	*Provisioner

	wake chan struct{} // has room for one

	mu      sync.Mutex
	running bool                       // guarded by mu; before that no node is connected
	due     map[wire.Identity]struct{} // guarded by mu: identities with entries that are perhaps not on record
}

func newEnforcement(p *Provisioner) *enforcement {
	return &enforcement{Provisioner: p, wake: make(chan struct{}, 1), due: make(map[wire.Identity]struct{})}
}

// applied notes an entry of the log of revocations, and drops the connections of its identity.
func (e *enforcement) applied(r *trust.Revocation) {
	if r.Node == "" {
		return
	}
	if e.put(r.Node) {
		e.cfg.Kick(r.Node)
	}
	select {
	case e.wake <- struct{}{}:
	default: // it was woken already
	}
}

// put notes an identity, and reports whether nodes may be connected.
func (e *enforcement) put(id wire.Identity) (running bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.due[id] = struct{}{}
	return e.running
}

// take returns the identities that are due.
func (e *enforcement) take() []wire.Identity {
	e.mu.Lock()
	defer e.mu.Unlock()
	ids := slices.Collect(maps.Keys(e.due))
	clear(e.due)
	e.running = true
	return ids
}

const (
	// enforceTimeout bounds the work for one identity, so that one that is written
	// to all the time does not hold the others up.
	enforceTimeout = 5 * time.Second

	// enforcePause is by how much longer each time a record is left alone that another process
	// writes: the broker refuses a second write before the first can be read.
	enforcePause = 10 * time.Millisecond

	// enforceAgain is how long an identity waits whose record could not be written.
	enforceAgain = time.Second
)

// enforceAll brings the record of every identity with new entries to what the log says of it, until
// ctx is done. Every process does that, so that it is completed wherever another one ended.
func (e *enforcement) enforceAll(ctx context.Context) error {
	failed := false
	for {
		var again <-chan time.Time
		for _, id := range e.take() {
			err := e.enforceSoon(ctx, id)
			if ctx.Err() != nil {
				return nil
			}
			if err != nil {
				e.put(id)
				again = time.After(enforceAgain)
			}
			if err != nil && !failed {
				e.cfg.Log.WarnContext(ctx, "revocations not yet on record, they are in force all the same", "node", id, "err", err)
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

// enforceSoon is Enforce, in the time that one identity has. What was begun is finished while
// the process stops.
func (e *enforcement) enforceSoon(ctx context.Context, id wire.Identity) error {
	finishing, end := Finishing(ctx)
	defer end()
	bounded, cancel := context.WithTimeout(finishing, enforceTimeout)
	defer cancel()
	return e.Enforce(bounded, id)
}

// Enforce brings the record of an identity to what the newest entry of the log
// says of it: revoked, or retired. Two at once meet in the compare-and-set.
//
// An entry is applied once: the record names the newest one that it has followed, also over a
// retirement, so that an old entry does not hit the machine that has the name since.
func (p *Provisioner) Enforce(ctx context.Context, id wire.Identity) error {
	for round := range maxRounds {
		err := p.enforcing.enforceOnce(ctx, id)
		if !errors.Is(err, errAgain) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Duration(round) * enforcePause):
		}
	}
	return errAgain
}

func (e *enforcement) enforceOnce(ctx context.Context, id wire.Identity) error {
	record, after, err := e.cfg.Store.Record(ctx, id)
	if err != nil || record == nil {
		return err
	}
	if err := e.KnowFollowed(ctx, record); err != nil {
		return err
	}
	entry, newest := e.revocations.About(id)
	if !applies(entry, record) {
		return nil
	}
	// A certificate may have been issued since the entry was written, and a
	// restored record may be of before it: the entries must name all that this
	// revision of the record does.
	want, err := EntryAbout(entry.Kind, record, e.now(), trust.Cause{By: entry.By, Why: entry.Why})
	if err != nil {
		return err
	}
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
		next.State, next.Current, next.Next = StateRetired, nil, nil
		event = events.Retired
	}
	next.keep(record, next.UpdatedAt)
	if err := e.records.publish(ctx, &next, after, nil); err != nil {
		return err
	}
	e.cfg.Emit(events.Event{Type: event, Time: e.moment(), Node: string(id), By: entry.By, Why: entry.Why, Attempt: next.Attempt})
	e.cfg.Log.InfoContext(ctx, "node kept out", "node", id, "state", next.State, "by", entry.By, "why", entry.Why)
	return nil
}

// applies reports whether the newest entry about an identity, nil without one, is still to be
// written to its record.
func applies(entry *trust.Revocation, r *Record) bool {
	switch {
	case entry == nil, entry.ID == r.Revoked, r.State == StateRetired:
		return false
	case entry.Kind == trust.RetiredNode:
		return true
	}
	return r.State != StateRevoked
}

// KnowFollowed reads the log of revocations once more if the record, which may be nil, has
// followed an entry that this process does not know: its view is behind the record, unless the
// store was restored.
func (p *Provisioner) KnowFollowed(ctx context.Context, r *Record) error {
	if r == nil || r.Revoked == "" || p.revocations.Knows(r.Revoked) {
		return nil
	}
	return p.logs.Sync(ctx)
}

// EntryAbout returns the entry of now that revokes or retires the identity of a record: with every
// certificate that has not expired, superseded ones too, since a copy of a node's disk has those
// as well.
func EntryAbout(kind trust.RevocationKind, r *Record, now time.Time, c trust.Cause) (*trust.Revocation, error) {
	e := &trust.Revocation{
		Schema: trust.RevocationSchema,
		ID:     wire.NewID(),
		Kind:   kind,
		At:     now,
		By:     c.By,
		Why:    c.Why,
		Node:   r.Identity,
	}
	for _, c := range r.Superseded {
		if now.Before(c.NotAfter) {
			e.Certificates = append(e.Certificates, c)
		}
	}
	for _, i := range []*Issued{r.Current, r.Next} {
		if !i.live(now) || slices.ContainsFunc(e.Certificates, func(c trust.RevokedCertificate) bool { return c.Serial == i.Serial }) {
			continue
		}
		c, err := i.forCRL()
		if err != nil {
			return nil, fmt.Errorf("record of %q: certificate %s: %w", r.Identity, i.Serial, err)
		}
		e.Certificates = append(e.Certificates, c)
	}
	if kind == trust.RetiredNode {
		return e, nil
	}
	e.Keys = slices.Clone(r.Lineage)
	for _, i := range []*Issued{r.Current, r.Next} {
		if i != nil && !slices.Contains(e.Keys, i.KeyHash) {
			e.Keys = append(e.Keys, i.KeyHash)
		}
	}
	return e, nil
}
