package jwt

import (
	"muster/internal/wire"
)

// Unverified is an unauthenticated token. It grants nothing.
type Unverified struct {
	Claims
	Limits    Limits // from extensions, not enforced
	Algorithm string
	Payload   wire.Secret // JSON object of claims as in the token
}

// Peek checks only the form of a token, as strictly as [Verifier.Verify]. The error wraps [ErrMalformed],
// [ErrUnsupported] or [ErrLimit].
func Peek(text string) (*Unverified, error) {
	c, err := parse(text)
	if err != nil {
		return nil, err
	}
	return &Unverified{Claims: c.claims, Limits: c.limits, Algorithm: c.alg, Payload: wire.Secret(c.payload)}, nil
}
