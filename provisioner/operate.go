package provisioner

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/events"
)

// Bounds of a grant's life.
const (
	DefaultGrantTTL = time.Hour      // a walk to the machine
	MaxGrantTTL     = 24 * time.Hour // a shipment; an open door should not be forgotten
)

// ErrNoRecord means that an identity has never enrolled here.
var ErrNoRecord = errors.New("no such node")

// ErrState means that what an operator asks for makes no sense in the state that
// a node or a token is in. The text says which, and what to do.
var ErrState = errors.New("not in this state")

// An OrderError says all that is wrong with an order as it was given, whatever state things
// are in: nothing was done, and given again it is refused again.
type OrderError struct{ Err error }

// Error implements error.
func (e *OrderError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong.
func (e *OrderError) Unwrap() error { return e.Err }

// wrong returns what is wrong with an order as an [OrderError], nil if nothing is.
func wrong(errs ...error) error {
	if err := errors.Join(errs...); err != nil {
		return &OrderError{err}
	}
	return nil
}

// IdentifyToken returns the id of a token by its text, so that one that nobody
// has used yet can be revoked. The error is that of [jwt.Verifier.Verify]: a
// token that is over, or of no signer of ours, needs no revocation.
func (p *Provisioner) IdentifyToken(text string) (jwt.TokenID, error) {
	token, err := p.cfg.Tokens.VerifyFrom(text, nil)
	if err != nil {
		return "", err
	}
	return token.ID, nil
}

// RevokeToken makes the token worthless, everywhere within a second and in this
// process at once. The token need not be known: it may have been signed
// elsewhere and never used. Nodes that enrolled with it stay. Asking again is
// harmless. The error is [ErrPending] if the store did not answer.
func (p *Provisioner) RevokeToken(ctx context.Context, id jwt.TokenID, c Cause) error {
	if err := wrong(c.Check(), CheckTokenID(id)); err != nil {
		return fmt.Errorf("revoke token: %w", err)
	}
	if by := p.revocations.Token(id); by != nil {
		if err := p.revocations.repeat(ctx, 0); err != nil {
			return fmt.Errorf("revoke token %s: %w: %w", id, ErrPending, err)
		}
		return nil
	}
	entry := &Revocation{Schema: RevocationSchema, ID: wire.NewID(), Kind: RevokedToken, At: p.now(), By: c.By, Why: c.Why, Token: id}
	told := events.Event{Type: events.TokenRevoked, Time: p.moment(), Token: id, By: c.By, Why: c.Why}
	if err := p.revocations.add(ctx, entry, nil); err != nil {
		return fmt.Errorf("revoke token %s: %w", id, err)
	}
	p.tellRevoked(ctx, told)
	return nil
}

// tellRevoked emits the event of an entry that is in the log of revocations.
func (p *Provisioner) tellRevoked(ctx context.Context, e events.Event) {
	p.cfg.Emit(e)
	if e.Type == events.TokenRevoked {
		p.cfg.Log.InfoContext(ctx, "token revoked", "token_id", e.Token, "by", e.By, "why", e.Why)
		return
	}
	p.cfg.Log.InfoContext(ctx, "node retired", "node", e.Node, "by", e.By, "why", e.Why)
}

// RevokeNode keeps a node out for good: its connections are dropped within a
// second on every broker, its certificates go on the CRL, and neither its keys
// nor its identity get another one until an operator retires the identity.
//
// Every step may be the last: once the log of revocations has the entry, every
// process that sees it completes the rest. Asking again is harmless. The error
// is [ErrNoRecord], [ErrState] if the identity is retired, or [ErrPending] if
// the store did not answer: the node is kept out here and dropped all the same,
// also if its record could not be read. An identity that turns out never to have
// enrolled is kept out then, too, until it is retired.
//
// With Seen.OwnedSince it is [ErrChanged] if another machine has the name; a record that cannot be read is no
// reason to wait.
func (p *Provisioner) RevokeNode(ctx context.Context, id wire.Identity, c Cause, seen ...Seen) error {
	if err := wrong(c.Check()); err != nil {
		return fmt.Errorf("revoke %q: %w", id, err)
	}
	record, at, err := p.recordSoon(ctx, id)
	if err != nil {
		if _, bad := wire.ParseIdentity(string(id)); bad != nil {
			return fmt.Errorf("revoke %q: %w", id, err)
		}
		if err := p.revokeUnread(ctx, id, c, err); err != nil {
			return fmt.Errorf("revoke %q: %w", id, err)
		}
		return nil
	}
	switch record.state() {
	case StateNone:
		return fmt.Errorf("revoke %q: %w", id, ErrNoRecord)
	case StateRetired:
		return fmt.Errorf("revoke %q: %w: it is retired: its certificates are revoked, and the name is free", id, ErrState)
	case StateRevoked:
		if s := p.revocations.standing(id); s.Revocation != nil && s.Kind == RevokedNode {
			p.revocations.touch(id, disposition{kick: true})
			return nil
		}
		// Revoked by hand, without an entry: the CRL does not know.
	}
	for _, s := range seen {
		if err := s.Check(record, at); err != nil {
			return fmt.Errorf("revoke %q: %w", id, err)
		}
	}
	bounded, cancel := context.WithTimeout(ctx, recordTimeout)
	entry, err := p.entryAbout(bounded, RevokedNode, record, c)
	cancel()
	if err != nil {
		// What the record itself names is a beginning, the rest is supplemented.
		p.cfg.Log.WarnContext(ctx, "history not read, the revocation names what the record does", "node", id, "err", err)
		entry, err = p.entryWith(RevokedNode, record, nil, c)
	}
	if err == nil {
		err = p.revocations.add(ctx, entry, p.kicker(ctx, id))
	}
	if err == nil {
		err = p.enforce(ctx, id)
	}
	// Its connections go with those of whoever else was revoked meanwhile, also if
	// it is only in force here: the gate does not let it in again.
	p.revocations.touch(id, disposition{kick: true})
	if err != nil {
		return fmt.Errorf("revoke %q: %w", id, err)
	}
	return nil
}

// recordTimeout is how long who revokes a node waits for its record, and for
// its history, before the node is kept out without: within a second or two its
// connections are to be gone, and the store may not answer at all.
const recordTimeout = time.Second

// recordSoon returns the newest record of id, if the store has it at once.
func (p *Provisioner) recordSoon(ctx context.Context, id wire.Identity) (*Record, Revision, error) {
	bounded, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	return p.cfg.Store.Record(bounded, id)
}

// revokeUnread keeps out a node whose record could not be read, for which unread
// is the reason: by its name alone. Its keys and certificates are added by
// whoever completes the entry (enforce).
func (p *Provisioner) revokeUnread(ctx context.Context, id wire.Identity, c Cause, unread error) error {
	kick := p.kicker(ctx, id)
	var err error
	if p.revocations.outstanding(id, nil) != nil {
		// Asked again, it is in force already.
		var beside sync.WaitGroup // as in add
		beside.Go(kick)
		err = p.revocations.repeat(ctx, 0)
		beside.Wait()
	} else {
		err = p.revocations.add(ctx, &Revocation{
			Schema: RevocationSchema, ID: wire.NewID(), Kind: RevokedNode, At: p.now(), By: c.By, Why: c.Why, Node: id,
		}, kick)
	}
	if err == nil {
		err = p.enforce(ctx, id)
	}
	p.revocations.touch(id, disposition{kick: true})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrPending):
		return err
	}
	return fmt.Errorf("%w: %w", ErrPending, errors.Join(unread, err))
}

// kicker returns what drops the connections of id here. It is called as soon as
// the gate knows why, and not left to those who follow the log: they may be
// waiting for the store.
func (p *Provisioner) kicker(ctx context.Context, id wire.Identity) func() {
	return func() { p.cfg.Kick(ctx, id) }
}

// RetireNode frees an identity for any key: the machine is gone. What
// certificates it has are revoked and its connections dropped, within a second
// on every broker. Revoked identities are retired so that the name, or the same
// machine, may enroll again. Asking again is harmless. The error is
// [ErrNoRecord], [ErrChanged] if the node is not as it was seen, or [ErrPending] if the store did not answer.
func (p *Provisioner) RetireNode(ctx context.Context, id wire.Identity, c Cause, seen ...Seen) error {
	if err := wrong(c.Check()); err != nil {
		return fmt.Errorf("retire %q: %w", id, err)
	}
	if len(seen) > 0 {
		if err := p.revocations.look(ctx); err != nil { // another provisioner's, of this moment
			return fmt.Errorf("retire %q: %w", id, err)
		}
	}
	record, at, err := p.cfg.Store.Record(ctx, id)
	if err != nil {
		return fmt.Errorf("retire %q: %w", id, err)
	}
	switch newest := p.revocations.outstanding(id, record); {
	case record == nil && newest == nil:
		return fmt.Errorf("retire %q: %w", id, ErrNoRecord)
	case record.state() == StateRetired && newest == nil:
		return nil
	case len(seen) > 0 && newest != nil && newest.Kind == RevokedNode && record.state() != StateRevoked: // a stolen machine's name must not be freed
		return fmt.Errorf("retire %q: %w: it is revoked", id, ErrChanged)
	}
	for _, s := range seen {
		if err := s.Check(record, at); err != nil {
			return fmt.Errorf("retire %q: %w", id, err)
		}
	}
	if p.revocations.pends(id) {
		// What was said of it before comes before it, or it would undo this.
		if err := p.revocations.repeat(ctx, 0); err != nil {
			return fmt.Errorf("retire %q: %w", id, err)
		}
	}
	unknown := record == nil
	if unknown {
		// Revoked, and its record lost with what a restored store has forgotten.
		record = &Record{Identity: id}
	}
	told := events.Event{Type: events.Retired, Time: p.moment(), Node: string(id), By: c.By, Why: c.Why}
	entry, err := p.entryAbout(ctx, RetiredNode, record, c)
	if err == nil {
		err = p.revocations.add(ctx, entry, p.kicker(ctx, id))
	}
	if err == nil {
		err = p.enforce(ctx, id)
	}
	p.revocations.touch(id, disposition{kick: true})
	if err != nil {
		return fmt.Errorf("retire %q: %w", id, err)
	}
	if unknown {
		p.tellRevoked(ctx, told)
	}
	return nil
}

// CheckKeyHash reports whether a text is no SHA-256 of a public key, as records and
// logs have it.
func CheckKeyHash(text string) error {
	if !isSHA256(text) {
		return fmt.Errorf("key hash %.80q, want 64 lower-case hex digits", text)
	}
	return nil
}

// A GrantOrder is what a grant is to be.
type GrantOrder struct {
	// ID is the grant's: who repeats an order keeps it. Empty makes a new one.
	ID      string
	KeyHash string        // 64 hex digits: that key alone; any if empty
	TTL     time.Duration // [MaxGrantTTL] at most; 0 is [DefaultGrantTTL]
	Seen    Seen
}

// maxOrderID bounds an id that somebody else has made; ours have 22 letters.
const maxOrderID = 64

// checkOrderID reports what about the id of an order cannot be. Empty is none, and may be.
func checkOrderID(id string) error {
	if len(id) > maxOrderID || !utf8.ValidString(id) { // who repeats it would not be known by it
		return fmt.Errorf("an id of %d bytes, want %d of UTF-8 at most", len(id), maxOrderID)
	}
	return nil
}

// GrantNode lets one other key take the identity over, once. It replaces an earlier grant
// for the identity, and is written over that one alone: an order that comes late does not take
// back what was ordered since. One with the same id, spent or not, is the answer: asked again since
// the answer was lost, nobody else gets the name from the machine that has it by then. One
// that is not spent and was given by a clock that was ahead is given anew. The
// error is [ErrNoRecord], or [ErrState] if the identity is free or revoked, if the grant
// with this id was used and another one was given since, or if somebody else gives one
// meanwhile. After any other it may have happened, and asking again is harmless.
func (p *Provisioner) GrantNode(ctx context.Context, id wire.Identity, o GrantOrder, c Cause) (*Grant, error) {
	keyHash, ttl := o.KeyHash, cmp.Or(o.TTL, DefaultGrantTTL)
	err := c.Check()
	if keyHash != "" {
		err = errors.Join(err, CheckKeyHash(keyHash))
	}
	err = errors.Join(err, checkOrderID(o.ID))
	if ttl < time.Minute || ttl > MaxGrantTTL {
		err = errors.Join(err, fmt.Errorf("for %v, want 1m to %v", ttl, MaxGrantTTL))
	}
	if err := wrong(err); err != nil {
		return nil, fmt.Errorf("grant %q: %w", id, err)
	}
	record, at, err := p.cfg.Store.Record(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("grant %q: %w", id, err)
	}
	switch {
	case record == nil:
		return nil, fmt.Errorf("grant %q: %w: a name that was never seen needs no grant, an allow-list entry is enough", id, ErrNoRecord)
	case record.State == StateRetired:
		return nil, fmt.Errorf("grant %q: %w: it is retired, any key may have it", id, ErrState)
	case record.State == StateRevoked || p.revocations.outstanding(id, record) != nil:
		return nil, fmt.Errorf("grant %q: %w: it is revoked, retire it first", id, ErrState)
	case keyHash != "" && p.revocations.Key(keyHash) != nil:
		return nil, fmt.Errorf("grant %q: %w: the key: %w", id, ErrState, p.revocations.Key(keyHash).cause())
	}
	newest, after, err := p.logs.Grant(id)
	if err != nil && o.ID != "" { // one that cannot be read is replaced
		return nil, fmt.Errorf("grant %q: %w", id, err)
	}
	if o.ID != "" {
		if newest != nil && newest.ID == o.ID && (record.Grant == o.ID || !toCome(newest.At, p.now())) {
			return newest, nil
		}
		history, _, err := p.cfg.Store.History(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("grant %q: %w", id, err)
		}
		if slices.ContainsFunc(history, func(r Revised) bool { return r.Record.Grant == o.ID }) {
			return nil, fmt.Errorf("grant %q: %w: this order was carried out and used, and another one was given since", id, ErrState)
		}
	} else {
		o.ID = wire.NewID()
	}
	if err := o.Seen.Check(record, at); err != nil {
		return nil, fmt.Errorf("grant %q: %w", id, err)
	}
	now := p.now()
	g := &Grant{ID: o.ID, Identity: id, KeyHash: keyHash, At: now, Owned: record.OwnedSince, ExpiresAt: now.Add(ttl), By: c.By, Why: c.Why}
	told := events.Event{Type: events.Granted, Time: p.moment(), Node: string(id), By: c.By, Why: c.Why}
	if _, err := p.logs.Grants.Put(ctx, g.LogKey(), g, after); err != nil {
		return nil, fmt.Errorf("grant %q: %w", id, changedMeanwhile(err))
	}
	p.cfg.Emit(told)
	p.cfg.Log.InfoContext(ctx, "takeover granted", "node", id, "by", c.By, "why", c.Why, "until", g.ExpiresAt)
	return g, nil
}

// isSHA256 reports whether s is 64 lower-case hex digits.
func isSHA256(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == 32 && hex.EncodeToString(b) == s
}
