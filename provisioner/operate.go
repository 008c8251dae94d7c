package provisioner

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/events"
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

// isSHA256 reports whether s is 64 lower-case hex digits.
func isSHA256(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == 32 && hex.EncodeToString(b) == s
}
