package operate

import (
	"context"
	"errors"

	"muster/jwt"
	"muster/provisioner/events"
	"muster/provisioner/trust"
)

// Tokens are the tokens that nodes enroll with.
type Tokens struct{ *base }

// Identify returns the id of a token by its text. The error is that of [jwt.Verifier.Verify]: a token that is not valid
// needs no revocation.
func (t *Tokens) Identify(text string) (jwt.TokenID, error) {
	token, err := t.cfg.Signers.VerifyFrom(text, nil)
	if err != nil {
		return "", err
	}
	return token.ID, nil
}

// Revoke makes a token invalid, even if the store does not know it. Nodes that enrolled with it stay. The error is
// [trust.ErrUnacknowledged] if the store did not answer.
func (t *Tokens) Revoke(ctx context.Context, id jwt.TokenID, c trust.Cause) (err error) {
	defer about(&err, "revoke token %.80q", string(id))
	if err := wrong(c.Check(), trust.CheckTokenID(id)); err != nil {
		return err
	}
	if t.provisioner.Revocations().Token(id) != nil {
		return nil
	}
	entry := trust.NewRevocation(trust.RevokedToken, t.now(), c)
	entry.Token = id
	e := t.event(events.TokenRevoked, c)
	e.Token = id
	err = t.provisioner.Revocations().Put(ctx, entry, 0)
	if errors.Is(err, trust.ErrConflict) { // another provisioner was first
		return nil
	}
	if err == nil {
		t.report(ctx, "token revoked", e, "token_id", id)
	}
	return err
}
