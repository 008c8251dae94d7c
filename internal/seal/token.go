package seal

import (
	"crypto/hmac"
	"errors"
	"fmt"
	"strings"

	"muster/internal/wire"
)

const (
	tokenFamily = "muster-sealed-" // all versions; no JWS begins like this
	tokenPrefix = tokenFamily + "v1."

	// MaxSealedTokenBytes is the sealed size of a token of [wire.MaxTokenBytes].
	MaxSealedTokenBytes = len(tokenPrefix) + (idBytes*8+5)/6 + 1 +
		(encapsulatedBytes*8+5)/6 + 1 + (maxTokenCiphertext*8+5)/6

	maxTokenCiphertext = saltBytes + (lengthBytes+wire.MaxTokenBytes+padTo-1)/padTo*padTo + tagBytes
)

// IsSealedToken recognizes sealed tokens of any version.
func IsSealedToken(s string) bool { return strings.HasPrefix(s, tokenFamily) }

// Presented is what a client sends in CONNECT, and the broker's nonce.
type Presented struct {
	Token     string // auth_token, see [Session.Token]
	Name      string // nkey, see [Session.Name]
	Signature string // sig, see [Session.Prove]
	Nonce     string // what the broker sent to this connection
}

// ErrProof means that a sealed token may have been recorded on another connection.
var ErrProof = errors.New("not from the connection for which it was sealed")

// OpenToken opens the token of a connection; the caller must verify it. The error wraps [ErrUnknownKey], [ErrOpen]
// or [ErrProof].
func (o *Opener) OpenToken(p Presented) (wire.Secret, error) {
	s, err := parseToken(p.Token)
	if err != nil {
		return "", fmt.Errorf("token: %w", err)
	}
	switch name := SessionName(s.Encapsulated); {
	case p.Name != name:
		return "", fmt.Errorf("token: %w: sealed for session %.60q, presented by session %.60q", ErrProof, name, p.Name)
	case p.Nonce == "":
		return "", fmt.Errorf("token: %w: the broker has sent no nonce", ErrProof)
	}
	session, keep, err := o.session(s.Key, s.Encapsulated)
	if err != nil {
		return "", fmt.Errorf("token: %w", err)
	}
	want := session.proof([]byte(p.Nonce))
	if got, ok := decode64(p.Signature); !ok || !hmac.Equal(got, want) {
		return "", fmt.Errorf("token: %w: no proof over the nonce of this connection", ErrProof)
	}
	b, _, err := session.open(PurposeConnect, s.Ciphertext)
	switch {
	case err != nil:
		return "", fmt.Errorf("token: %w", err)
	case len(b) == 0 || len(b) > wire.MaxTokenBytes:
		return "", fmt.Errorf("token: %w: it contains %d bytes, want 1 to %d", ErrOpen, len(b), wire.MaxTokenBytes)
	case IsSealedToken(string(b)):
		return "", fmt.Errorf("token: %w: it contains a sealed token", ErrOpen)
	}
	keep()
	return wire.Secret(b), nil
}

func parseToken(s string) (*wire.Envelope, error) {
	if len(s) > MaxSealedTokenBytes {
		return nil, fmt.Errorf("%w: %d bytes, limit %d", ErrOpen, len(s), MaxSealedTokenBytes)
	}
	rest, ok := strings.CutPrefix(s, tokenPrefix)
	if !ok {
		return nil, fmt.Errorf("%w: does not begin with %q", ErrOpen, tokenPrefix)
	}
	parts := strings.Split(rest, ".")
	if len(parts) != 3 {
		return nil, fmt.Errorf("%w: %d parts, want key id, encapsulated key and ciphertext", ErrOpen, len(parts))
	}
	enc, ok1 := decode64(parts[1])
	ct, ok2 := decode64(parts[2])
	if !ok1 || !ok2 {
		return nil, fmt.Errorf("%w: not base64url without padding", ErrOpen)
	}
	if err := checkFrame("ciphertext", ct, maxCiphertextBytes); err != nil {
		return nil, err
	}
	return &wire.Envelope{Key: parts[0], Encapsulated: enc, Ciphertext: ct}, nil
}
