package operate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"muster/provisioner/trust"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/events"
)

// ErrNotOneTime means that a token is not one for a single machine and a single
// use that ends.
var ErrNotOneTime = errors.New("not a one-time token")

// MaxIssuedTTL is how long a one-time token may be good from when it is listed:
// from the build of an image to its first boot; chosen. A token lies in images and
// mails, and an open door should not be forgotten.
const MaxIssuedTTL = 30 * 24 * time.Hour

// Times of writing an issued token down; chosen.
const (
	issueTimeout = 10 * time.Second
	issueLook    = 20 * time.Millisecond
)

// Issue lists a token that somebody has just signed for one machine: good
// for one use, for exactly one name, until it expires, [MaxIssuedTTL] from now at
// most. It is listed until it is used or over. Its text is verified and goes nowhere else. Listing it again is
// harmless. The error wraps [ErrNotOneTime], or is that of [jwt.Verifier.Verify]
// if it would not be good here.
func (t *Tokens) Issue(ctx context.Context, text string, c trust.Cause) (*trust.TokenInfo, error) {
	if err := wrong(c.Check()); err != nil {
		return nil, fmt.Errorf("issue token: %w", err)
	}
	token, err := t.verifier.VerifyFrom(text, nil)
	if err != nil {
		return nil, fmt.Errorf("issue token: %w: %w", ErrNotOneTime, err)
	}
	l := token.Limits
	if l.Uses != 1 || len(l.Identities) != 1 || token.Expiry().IsZero() {
		return nil, fmt.Errorf("issue token: %w: want 1 use, 1 name and an end", ErrNotOneTime)
	}
	// The clock of who signed it may be ahead of ours.
	if left := token.Expiry().Sub(t.now()); left > MaxIssuedTTL+jwt.NotBeforeLeeway {
		return nil, fmt.Errorf("issue token: %w: good until %s, want %v from now at most: sign another one",
			ErrNotOneTime, token.Expiry().UTC().Format(time.RFC3339), MaxIssuedTTL)
	}
	id, err := wire.ParseIdentity(string(l.Identities[0]))
	if err != nil {
		return nil, fmt.Errorf("issue token: %w: %w", ErrNotOneTime, err)
	}
	if err := t.reserved(id, token); err != nil {
		return nil, fmt.Errorf("issue token: %w: %w", ErrNotOneTime, err)
	}
	info := trust.NewTokenInfo(token, t.now())
	info.IssuedBy = c.By
	told := events.Event{Type: events.TokenIssued, Time: t.moment(), Node: string(id), Token: info.ID, Signer: info.Signer, By: c.By, Why: c.Why}
	if err := t.noteIssued(ctx, info); err != nil {
		return nil, fmt.Errorf("issue token %s: %w", info.ID, err)
	}
	t.emit(told)
	t.log.InfoContext(ctx, "token issued", "node", id, "token_id", info.ID, "by", c.By, "why", c.Why, "until", info.ExpiresAt)
	return info, nil
}

// noteIssued writes a token down and waits until it is there.
func (t *Tokens) noteIssued(ctx context.Context, info *trust.TokenInfo) error {
	ctx, cancel := context.WithTimeout(ctx, issueTimeout)
	defer cancel()
	t.store.NoteToken(info)
	tick := time.NewTicker(issueLook)
	defer tick.Stop()
	for {
		noted, err := t.store.NotedToken(ctx, info.ID)
		if err != nil || noted != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not listed: %w", ctx.Err())
		case <-tick.C:
		}
	}
}
