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
	// OperatorPurpose distinguishes operators' tokens from provisioning tokens that the same key signed.
	OperatorPurpose = "muster_operator"

	// MaxOperatorTTL bounds a token's remaining life, so that a token found in a shell's history soon is worthless.
	MaxOperatorTTL = time.Hour

	operatorSkew = time.Minute

	maxOperatorID = 64
)

// Errors of operators' tokens: sign another token.
var (
	ErrOperatorToken = errors.New("not a valid operator token")

	// ErrOperatorTime, with ErrOperatorToken, means that only the token's times are wrong. The text reveals only these
	// times and the clock.
	ErrOperatorTime = errors.New("not valid at this time")
)

// OperatorClaims are the claims of an operator's login token.
type OperatorClaims struct {
	Operator  string
	Audience  string // `aud`: id of the installation
	ID        string
	IssuedAt  time.Time
	ExpiresAt time.Time
}

// CheckOperatorKey accepts P-256, P-384 and Ed25519; otherwise the error wraps [ErrKey].
func CheckOperatorKey(pub crypto.PublicKey) error {
	switch pub.(type) {
	case *ecdsa.PublicKey, ed25519.PublicKey:
		return checkPublic(pub)
	default:
		return fmt.Errorf("%w: %s, want P-256, P-384 or Ed25519 for an operator", ErrKey, keyfile.Kind(pub))
	}
}

// SignOperator signs c without checking it. The error wraps [ErrKey].
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

// An OperatorToken is not authenticated before [OperatorToken.Verify].
type OperatorToken struct{ compact *compact }

// ParseOperator parses strictly. The error wraps [ErrMalformed], [ErrUnsupported], [ErrLimit] or [ErrOperatorToken].
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

// Claimed returns the unauthenticated operator, for looking up the key.
func (t *OperatorToken) Claimed() string { return t.compact.claims.Subject }

// Verify checks key, audience and time. The error wraps [ErrUnsupported], [ErrSignature] or [ErrOperatorToken], and
// [ErrOperatorTime] if only its times are wrong.
func (t *OperatorToken) Verify(key crypto.PublicKey, audience string, now time.Time) (*OperatorClaims, error) {
	if err := CheckOperatorKey(key); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	if err := checkSignature(t.compact, key); err != nil {
		return nil, err
	}
	c := &t.compact.claims
	switch {
	// The audience must match exactly: an installation could present a token with several audiences to another one.
	case audience == "" || !slices.Equal(c.Audience, []string{audience}):
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

// checkOperatorTime returns only the first reason: a wrong clock may cause several.
func (c *Claims) checkOperatorTime(now time.Time) error {
	begins := c.IssuedAt
	if c.NotBefore.After(begins) {
		begins = c.NotBefore
	}
	switch {
	case begins.After(now.Add(operatorSkew)):
		return fmt.Errorf("it is valid from %s, and this clock says %s", instant(begins), instant(now))
	case c.ExpiresAt.IsZero():
		return errors.New("it has no exp")
	case !c.ExpiresAt.After(now):
		return fmt.Errorf("it expired at %s, and this clock says %s", instant(c.ExpiresAt), instant(now))
	case c.ExpiresAt.After(now.Add(MaxOperatorTTL + operatorSkew)):
		return fmt.Errorf("it expires at %s, and this clock says %s: want %v at most",
			instant(c.ExpiresAt), instant(now), MaxOperatorTTL)
	}
	return nil
}
