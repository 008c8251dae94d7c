package jwt

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"muster/internal/keyfile"
)

const (
	// OperatorPurpose is the `purpose` of operators' tokens, so that a
	// provisioning token is none, whichever key has signed it.
	OperatorPurpose = "muster_operator"

	// MaxOperatorTTL is how long an operator's token may live from the time at
	// which it is shown; chosen, one that is found in a shell's history is
	// worthless after a lunch break.
	MaxOperatorTTL = time.Hour

	// operatorSkew is how far the operator's clock may be ahead of ours.
	operatorSkew = time.Minute

	maxOperatorID = 64 // bytes of a jti; chosen
)

// Errors of operators' tokens. Sign another.
var (
	// ErrOperatorToken means that a token is none by which an operator can come in,
	// for its form, its time or its audience.
	ErrOperatorToken = errors.New("no operator's token")

	// ErrOperatorTime means, with ErrOperatorToken, that nothing but the time is
	// wrong with it. What the error says is in the token, or every clock's.
	ErrOperatorTime = errors.New("not good at this time")
)

// OperatorClaims are what an operator's token says.
type OperatorClaims struct {
	Operator  string    // `sub`: the operator's name
	Audience  string    // `aud`: the id of the installation
	ID        string    // `jti`, 1 to 64 bytes
	IssuedAt  time.Time // `iat`
	ExpiresAt time.Time // `exp`, at most [MaxOperatorTTL] ahead
}

// CheckOperatorKey reports why operators' tokens cannot be signed by the key:
// it must be P-256 or Ed25519. The error wraps [ErrKey].
func CheckOperatorKey(pub crypto.PublicKey) error {
	switch pub.(type) {
	case *ecdsa.PublicKey, ed25519.PublicKey:
		return checkPublic(pub)
	default:
		return fmt.Errorf("%w: %s, want P-256 or Ed25519 for an operator", ErrKey, keyfile.Kind(pub))
	}
}

// SignOperator returns the token over c, signed by an operator's key: ES256 for
// P-256, EdDSA for Ed25519. It writes what it is given. The error wraps [ErrKey]
// for another key.
func SignOperator(key crypto.Signer, c OperatorClaims) (string, error) {
	if key == nil {
		return "", fmt.Errorf("sign operator's token: %w: no key", ErrKey)
	}
	if err := CheckOperatorKey(key.Public()); err != nil {
		return "", fmt.Errorf("sign operator's token: %w", err)
	}
	body, err := json.Marshal(map[string]any{
		"purpose": OperatorPurpose,
		"sub":     c.Operator,
		"aud":     []string{c.Audience},
		"jti":     c.ID,
		"iat":     c.IssuedAt.Unix(),
		"exp":     c.ExpiresAt.Unix(),
	})
	var text string
	if err == nil {
		text, err = signCompact(key, body)
	}
	if err != nil {
		return "", fmt.Errorf("sign operator's token: %w", err)
	}
	return text, nil
}

// An OperatorToken is the text of an operator's token taken apart. Nothing in it
// is authenticated before [OperatorToken.Verify].
type OperatorToken struct{ compact *compact }

// ParseOperator takes the text of an operator's token apart, strictly. The error
// wraps [ErrMalformed], [ErrUnsupported], [ErrLimit] or [ErrOperatorToken].
func ParseOperator(text string) (*OperatorToken, error) {
	c, err := parse(text)
	if err != nil {
		return nil, err
	}
	if c.claims.Purpose != OperatorPurpose {
		return nil, fmt.Errorf("%w: purpose %.40q, want %q", ErrOperatorToken, c.claims.Purpose, OperatorPurpose)
	}
	return &OperatorToken{c}, nil
}

// Claimed returns the operator that the token names: only good to find the key.
func (t *OperatorToken) Claimed() string { return t.compact.claims.Subject }

// Verify checks the token with the operator's key, for this audience, at this
// time. The algorithm is the key's. The error wraps [ErrUnsupported],
// [ErrSignature] or [ErrOperatorToken], and [ErrOperatorTime] if another clock
// would accept it.
func (t *OperatorToken) Verify(key crypto.PublicKey, audience string, now time.Time) (*OperatorClaims, error) {
	if err := CheckOperatorKey(key); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	if err := checkSignature(t.compact, key); err != nil {
		return nil, err
	}
	c := &t.compact.claims
	switch {
	case audience == "" || !slices.Equal(c.Audience, []string{audience}): // several could show it to each other
		return nil, fmt.Errorf("%w: aud is %.80q, want %q", ErrOperatorToken, c.Audience, audience)
	case c.JTI == "" || len(c.JTI) > maxOperatorID:
		return nil, fmt.Errorf("%w: jti of %d bytes, want 1 to %d", ErrOperatorToken, len(c.JTI), maxOperatorID)
	case c.IssuedAt.IsZero():
		return nil, fmt.Errorf("%w: no iat", ErrOperatorToken)
	}
	if err := c.checkOperatorTime(now); err != nil {
		return nil, fmt.Errorf("%w: %w: %w", ErrOperatorToken, ErrOperatorTime, err)
	}
	return &OperatorClaims{
		Operator:  c.Subject,
		Audience:  audience,
		ID:        c.JTI,
		IssuedAt:  c.IssuedAt,
		ExpiresAt: c.ExpiresAt,
	}, nil
}

// checkOperatorTime says why the token is not good now, in one line: of a clock that is
// wrong everything else follows.
func (c *Claims) checkOperatorTime(now time.Time) error {
	begins := c.IssuedAt
	if c.NotBefore.After(begins) {
		begins = c.NotBefore
	}
	switch {
	case begins.After(now.Add(operatorSkew)):
		return fmt.Errorf("it begins %s, and here it is %s", instant(begins), instant(now))
	case !c.ExpiresAt.After(now):
		return fmt.Errorf("it ended %s, and here it is %s", instant(c.ExpiresAt), instant(now))
	case c.ExpiresAt.After(now.Add(MaxOperatorTTL + operatorSkew)):
		return fmt.Errorf("it ends %s, and here it is %s: want %v at most", instant(c.ExpiresAt), instant(now), MaxOperatorTTL)
	}
	return nil
}
