package provisioner

import (
	"bytes"
	"errors"
	"fmt"

	"muster/internal/wire"
	"muster/jwt"
)

// CommandKey is what proves commands to a node that came with the token, nil if that has no secret.
func CommandKey(token *jwt.Verified, id wire.Identity) []byte {
	if token.Token == "" {
		return nil
	}
	return wire.CommandKey(token.Token, id)
}

// otherSecret reports whether the node has come with a token of another secret
// than the one that its record knows how to prove.
func (a *proof) otherSecret(r *Record) bool {
	return !a.renewal && !bytes.Equal(CommandKey(a.token, a.identity), r.CommandKey)
}

// TokenOver says why the token on a record would not let its node in again, in words that follow its id; nil if it would.
func (p *Provisioner) TokenOver(r *Record) error {
	if p.revocations.Token(r.Token) != nil {
		return errors.New("is revoked")
	}
	if p.cfg.Signers != nil && p.cfg.Signers.Ended(r.Signer) != nil {
		return fmt.Errorf("is of signer %s, who was removed", r.Signer)
	}
	token, err := r.recall()
	if err != nil {
		return err
	}
	if end := token.Expiry(); !end.IsZero() && !p.now().Before(end) {
		return fmt.Errorf("expired at %s", end)
	}
	return nil
}
