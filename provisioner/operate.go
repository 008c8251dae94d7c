package provisioner

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/events"
	"muster/provisioner/trust"
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
// harmless. The error is [trust.ErrUnacknowledged] if the store did not answer.
func (p *Provisioner) RevokeToken(ctx context.Context, id jwt.TokenID, c Cause) error {
	if err := wrong(c.Check(), trust.CheckTokenID(id)); err != nil {
		return fmt.Errorf("revoke token: %w", err)
	}
	if p.revocations.Token(id) != nil {
		return nil
	}
	entry := &trust.Revocation{
		Schema: trust.RevocationSchema,
		ID:     wire.NewID(),
		Kind:   trust.RevokedToken,
		At:     p.now(),
		By:     c.By,
		Why:    c.Why,
		Token:  id,
	}
	told := events.Event{Type: events.TokenRevoked, Time: p.moment(), Token: id, By: c.By, Why: c.Why}
	err := p.revocations.Put(ctx, entry, 0)
	if errors.Is(err, ErrConflict) { // another provisioner was first
		return nil
	}
	if err != nil {
		return fmt.Errorf("revoke token %s: %w", id, err)
	}
	p.cfg.Emit(told)
	p.cfg.Log.InfoContext(ctx, "token revoked", "token_id", id, "by", c.By, "why", c.Why)
	return nil
}

// RevokeNode keeps a node out for good: its connections are dropped within a
// second on every broker, its certificates go on the CRL, and neither its keys
// nor its identity get another one until an operator retires the identity.
//
// Once the log of revocations has the entry, every process that sees it completes the rest.
// Asking again is harmless. The error is [ErrNoRecord], [ErrState] if the identity is retired,
// [ErrChanged] if the node is not as it was seen, or [trust.ErrUnacknowledged] if the store did
// not answer. An identity whose record cannot be read is kept out by its name alone.
func (p *Provisioner) RevokeNode(ctx context.Context, id wire.Identity, c Cause, seen ...Seen) error {
	return p.takeBack(ctx, "revoke", id, c, func(record *Record, at Revision, newest *trust.Revocation, err error) (*trust.Revocation, error) {
		if errors.Is(err, ErrRecord) {
			return p.entryAbout(trust.RevokedNode, &Record{Identity: id}, c)
		}
		if err != nil {
			return nil, err
		}
		switch record.state() {
		case StateNone:
			return nil, ErrNoRecord
		case StateRetired:
			return nil, fmt.Errorf("%w: it is retired: its certificates are revoked, and the name is free", ErrState)
		}
		if newest != nil && newest.Kind == trust.RevokedNode && (record.State == StateRevoked || newest.ID != record.Revoked) {
			return nil, nil
		}
		if err := checkSeen(record, at, seen); err != nil {
			return nil, err
		}
		return p.entryAbout(trust.RevokedNode, record, c)
	})
}

// RetireNode frees an identity for any key: the machine is gone. What
// certificates it has are revoked and its connections dropped, within a second
// on every broker. Revoked identities are retired so that the name, or the same
// machine, may enroll again. Asking again is harmless. The error is [ErrNoRecord], [ErrChanged]
// if the node is not as it was seen, or [trust.ErrUnacknowledged] if the store did not answer.
func (p *Provisioner) RetireNode(ctx context.Context, id wire.Identity, c Cause, seen ...Seen) error {
	return p.takeBack(ctx, "retire", id, c, func(record *Record, at Revision, newest *trust.Revocation, err error) (*trust.Revocation, error) {
		if err != nil {
			return nil, err
		}
		revoked := newest != nil && newest.Kind == trust.RevokedNode
		switch {
		case record == nil && newest == nil:
			return nil, ErrNoRecord
		case record == nil && !revoked, record.state() == StateRetired && !revoked:
			return nil, nil
		case len(seen) > 0 && revoked && newest.ID != record.Followed() && record.state() != StateRevoked: // a stolen machine's name must not be freed
			return nil, fmt.Errorf("%w: it is revoked", ErrChanged)
		case record != nil && newest != nil && newest.Kind == trust.RetiredNode && newest.ID != record.Revoked:
			return nil, nil // by another provisioner
		}
		if err := checkSeen(record, at, seen); err != nil {
			return nil, err
		}
		if record == nil {
			// Revoked, and its record lost with what a restored store has forgotten.
			record = &Record{Identity: id}
		}
		return p.entryAbout(trust.RetiredNode, record, c)
	})
}

// checkSeen returns [ErrChanged] unless a record at a revision is as it was seen.
func checkSeen(record *Record, at Revision, seen []Seen) error {
	for _, s := range seen {
		if err := s.Check(record, at); err != nil {
			return err
		}
	}
	return nil
}

// takenBack returns the entry to write about an identity, nil for none, by its record, the newest
// entry about it, and why the record could not be read.
type takenBack func(record *Record, at Revision, newest *trust.Revocation, err error) (*trust.Revocation, error)

// takeBack writes the entry that decide makes of what is known of an identity, nil for none, and
// brings the record to it. It decides anew where another entry came first.
func (p *Provisioner) takeBack(ctx context.Context, verb string, id wire.Identity, c Cause, decide takenBack) error {
	if err := wrong(c.Check()); err != nil {
		return fmt.Errorf("%s %q: %w", verb, id, err)
	}
	err := error(ErrConflict)
	for range maxRounds {
		if err = p.takeBackOnce(ctx, id, decide); !errors.Is(err, ErrConflict) {
			break
		}
	}
	if err == nil {
		err = p.enforce(ctx, id)
	}
	if err != nil {
		return fmt.Errorf("%s %q: %w", verb, id, err)
	}
	return nil
}

// takeBackOnce returns [ErrConflict] if another entry came first.
func (p *Provisioner) takeBackOnce(ctx context.Context, id wire.Identity, decide takenBack) error {
	record, at, err := p.cfg.Store.Record(ctx, id)
	if err == nil {
		err = p.knowFollowed(ctx, record)
	}
	newest, expected := p.revocations.About(id)
	entry, err := decide(record, at, newest, err)
	if err != nil || entry == nil {
		return err
	}
	return p.revocations.Put(ctx, entry, expected)
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
