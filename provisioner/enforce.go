package provisioner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"muster/internal/wire"
	"muster/provisioner/events"
)

// enforce brings the record of an identity to what the newest entry of the log
// says of it: revoked, or retired. It is run by who revokes and by every process
// that sees the entry, so it is completed whoever dies on the way; two at once
// meet in the compare-and-set.
//
// An entry is applied once: the record names the place of the newest one that
// it has followed, also over a retirement, so that an old entry does not hit
// the machine that has the name since.
func (p *Provisioner) enforce(ctx context.Context, id wire.Identity) error {
	for range maxRounds {
		err := p.enforceOnce(ctx, id)
		if !errors.Is(err, errAgain) {
			return err
		}
	}
	return errAgain
}

func (p *Provisioner) enforceOnce(ctx context.Context, id wire.Identity) error {
	record, after, err := p.cfg.Store.Record(ctx, id)
	if err != nil {
		return err
	}
	entry := p.revocations.standing(id)
	if !p.applies(entry, record) {
		return nil
	}
	state := StateRevoked
	if entry.Kind == RetiredNode {
		state = StateRetired
	}
	// A certificate may have been issued since the entry was written, and a
	// restored record may be of before it: the entries must name all that this
	// revision of the record does.
	want, err := p.entryAbout(ctx, entry.Kind, record, Cause{By: entry.By, Why: entry.Why})
	if err != nil {
		return err
	}
	lacks, stands, tail := p.revocations.lacks(want, entry)
	if !stands {
		return errAgain // others have decided since: what it lacks is not to be said behind that
	}
	if lacks {
		// The history was read after the record. Had somebody written meanwhile, it might name
		// a certificate of the machine that has the name since.
		switch _, newest, err := p.cfg.Store.Record(ctx, id); {
		case err != nil:
			return err
		case newest != after:
			return errAgain
		}
		if err := p.revocations.supplement(ctx, want, tail); err != nil {
			return err
		}
		return errAgain
	}
	next := *record
	next.State, next.RevokedThrough, next.UpdatedAt, next.Attempt = state, entry.at, p.now(), wire.NewID()
	next.Operator = &Cause{By: entry.By, Why: entry.Why}
	if state == StateRetired {
		next.Current, next.Next = nil, nil
	}
	next.keep(record, p.cfg.Clock.believed(next.UpdatedAt))
	if err := p.publish(ctx, &next, after, nil); err != nil {
		return err
	}
	event := events.Revoked
	if state == StateRetired {
		event = events.Retired
	}
	p.cfg.Emit(events.Event{Type: event, Time: p.moment(), Node: string(id), By: entry.By, Why: entry.Why, Attempt: next.Attempt})
	p.cfg.Log.InfoContext(ctx, "node kept out", "node", id, "state", state, "by", entry.By, "why", entry.Why, "revision", uint64(entry.at))
	return nil
}

// applies reports whether the newest entry about an identity is still to be
// written to its record.
func (p *Provisioner) applies(entry placed, r *Record) bool {
	if entry.Revocation == nil || r == nil {
		return false
	}
	if entry.Kind == RetiredNode {
		return r.State != StateRetired && entry.at > r.RevokedThrough
	}
	if r.State == StateRevoked || r.State == StateRetired {
		return false
	}
	// A live certificate that is revoked is that of an older record, whatever
	// the places say: the log may have been made anew from a journal.
	return entry.at > r.RevokedThrough || slices.ContainsFunc([]*Issued{r.Current, r.Next}, func(i *Issued) bool {
		return i != nil && p.revocations.Serial(i.Serial) != nil
	})
}

// entryAbout returns the entry that revokes or retires the identity of a record:
// with every certificate of its history that has not expired, superseded ones
// too, since whoever has the disk of a node has those as well. The record names
// them all; the revisions that are kept are for records of before it did. One that
// has expired by a clock that is not believed yet is named like a live one: it is
// live again once the clock is set right, and nobody would revoke it then.
func (p *Provisioner) entryAbout(ctx context.Context, kind RevocationKind, r *Record, c Cause) (*Revocation, error) {
	history, err := p.cfg.Store.Certificates(ctx, r.Identity)
	if err != nil {
		return nil, err
	}
	return p.entryWith(kind, r, history, c)
}

// entryWith is entryAbout for a history that has been read.
func (p *Provisioner) entryWith(kind RevocationKind, r *Record, history []*Issued, c Cause) (*Revocation, error) {
	e := &Revocation{Schema: RevocationSchema, ID: wire.NewID(), Kind: kind, At: p.now(), By: c.By, Why: c.Why, Node: r.Identity}
	now := p.cfg.Clock.believed(e.At)
	if before := p.revocations.standing(r.Identity); before.Revocation != nil && e.At.Before(before.At) {
		e.At = before.At // by a clock that is ahead of ours, or was: this one comes behind it
	}
	if owned := r.Owned(); kind == RetiredNode && e.At.Before(owned) {
		e.At = owned // likewise: it means who has the name now
	}
	for _, c := range r.Superseded {
		if now.Before(c.NotAfter) {
			e.Certificates = append(e.Certificates, c)
		}
	}
	for _, i := range append([]*Issued{r.Current, r.Next}, history...) {
		if !i.live(now) || slices.ContainsFunc(e.Certificates, func(c RevokedCertificate) bool { return c.Serial == i.Serial }) {
			continue
		}
		c, err := i.forCRL()
		if err != nil {
			return nil, fmt.Errorf("record of %q: certificate %s: %w", r.Identity, i.Serial, err)
		}
		e.Certificates = append(e.Certificates, c)
	}
	if kind == RetiredNode {
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

// enforceAll drops the connections of every identity with new entries to this
// process's broker, and brings each to its end, as many as it can until the next look. If
// the store does not let it, or there are more, it goes on with the next call.
func (p *Provisioner) enforceAll(ctx context.Context) {
	var kick []wire.Identity
	for id, d := range p.revocations.takeTouched() {
		p.unenforced = append(p.unenforced, id)
		if d.kick {
			kick = append(kick, id)
		}
	}
	if len(kick) > 0 {
		// The gate knows the entries already, so nobody comes back.
		p.cfg.Kick(ctx, kick...)
	}
	// A process that has just started has all that there ever were before it: who is
	// revoked meanwhile is dropped all the same.
	var failed error
	for began := time.Now(); len(p.unenforced) > 0 && time.Since(began) < LookEvery; {
		id := p.unenforced[0]
		if failed = ctx.Err(); failed != nil {
			break
		}
		finishing, end := Finishing(ctx)
		bounded, cancel := context.WithTimeout(finishing, enforceTimeout)
		failed = p.enforce(bounded, id)
		cancel()
		end()
		p.unenforced = p.unenforced[1:]
		if failed != nil {
			p.unenforced = append(p.unenforced, id) // behind the others: it may be only this one
			if !p.enforceFailed && ctx.Err() == nil {
				p.cfg.Log.WarnContext(ctx, "revocations not yet on record, they are in force all the same", "node", id, "err", failed)
			}
			break
		}
	}
	p.enforceFailed = failed != nil
}

// enforceTimeout bounds the work for one identity, so that one that is written
// to all the time does not hold the others up.
const enforceTimeout = 5 * time.Second
