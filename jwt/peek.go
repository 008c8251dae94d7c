package jwt

import (
	"strings"

	"muster/internal/wire"
)

// Unverified is what a text says about itself. It is not authenticated: a node
// may follow it to a broker, and a person may read it, but nothing may be
// granted by it.
type Unverified struct {
	Claims
	Limits    Limits      // from the claim extensions; nothing enforces them here
	Algorithm string      // the JWS algorithm that the header names
	Payload   wire.Secret // the claims as the token spells them, a JSON object
}

// Peek reads a token without verifying it. It checks the form as strictly as
// [Verifier.Verify] does and nothing else: no signature, no purpose, no time.
// The error wraps [ErrMalformed], [ErrUnsupported] or [ErrLimit].
func Peek(text string) (*Unverified, error) {
	c, err := parse(text)
	if err != nil {
		return nil, err
	}
	return &Unverified{Claims: c.claims, Limits: c.limits, Algorithm: c.alg, Payload: wire.Secret(c.payload)}, nil
}

// FileText returns the token in the bytes of a token file: all of them but one
// line end at the end, which editors and echo add. Both [Peek] and
// [Verifier.Verify] refuse any other surplus.
func FileText(b []byte) string {
	return strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r")
}
