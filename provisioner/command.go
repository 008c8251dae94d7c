package provisioner

import (
	"bytes"
	"errors"
	"fmt"

	"muster/internal/wire"
	"muster/jwt"
)

// CommandKey returns the key that proves commands to a node that enrolled with the token. It is nil if the token's
// secret is not known.
func CommandKey(token *jwt.Verified, id wire.Identity) []byte {
	if token.Token == "" {
		return nil
	}
	return wire.CommandKey(token.Token, id)
}

func (a *proof) otherSecret(r *Record) bool {
	return !a.renewal && !bytes.Equal(CommandKey(a.token, a.identity), r.CommandKey)
}

// TokenUnusable returns why the recorded token would not admit its node again, or nil.
func (p *Provisioner) TokenUnusable(r *Record) error {
	if p.revocations.Token(r.Token) != nil {
		return errors.New("is revoked")
	}
	if p.cfg.Signers.Ended(r.Signer) != nil {
		return fmt.Errorf("was signed by signer %s, which was removed", r.Signer)
	}
	token, err := r.storedToken()
	if err != nil {
		return err
	}
	if end := token.Expiry(); !end.IsZero() && !p.now().Before(end) {
		return fmt.Errorf("expired at %s", end)
	}
	return nil
}
