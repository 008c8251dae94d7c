package jwt

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"muster/internal/keyfile"
	"muster/internal/wire"
)

const (
	// OperatorPurpose is the `purpose` of operators' tokens, so that a
	// provisioning token is none, whoever has signed it.
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

// operatorClaims is the form of them. All but nbf are required.
type operatorClaims struct {
	Purpose   string   `json:"purpose"`
	Subject   string   `json:"sub"`
	Audience  audience `json:"aud"`
	ID        string   `json:"jti"`
	IssuedAt  int64    `json:"iat"`
	NotBefore int64    `json:"nbf,omitempty"`
	ExpiresAt int64    `json:"exp"`
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
	body, err := json.Marshal(operatorClaims{
		Purpose:   OperatorPurpose,
		Subject:   c.Operator,
		Audience:  audience{c.Audience},
		ID:        c.ID,
		IssuedAt:  c.IssuedAt.Unix(),
		ExpiresAt: c.ExpiresAt.Unix(),
	})
	if err != nil {
		return "", fmt.Errorf("sign operator's token: %w", err)
	}
	text, err := signCompact(key, body)
	if err != nil {
		return "", fmt.Errorf("sign operator's token: %w", err)
	}
	return text, nil
}

// An OperatorToken is the text of an operator's token taken apart. Nothing in it
// is authenticated before [OperatorToken.Verify].
type OperatorToken struct {
	compact *compact
	claims  operatorClaims
}

// ParseOperator takes the text of an operator's token apart, strictly. The error
// wraps [ErrMalformed], [ErrUnsupported] or [ErrOperatorToken].
func ParseOperator(text string) (*OperatorToken, error) {
	c, body, err := takeApart(text)
	if err != nil {
		return nil, err
	}
	t := &OperatorToken{compact: c}
	if err := wire.CheckStrict(body); err != nil {
		return nil, fmt.Errorf("%w: claims: %w", ErrMalformed, err)
	}
	if err := json.Unmarshal(body, &t.claims); err != nil {
		return nil, fmt.Errorf("%w: claims: %.200s", ErrMalformed, err.Error()) // it quotes numbers whole
	}
	if t.claims.Purpose != OperatorPurpose {
		return nil, fmt.Errorf("%w: purpose %.40q, want %q", ErrOperatorToken, t.claims.Purpose, OperatorPurpose)
	}
	return t, nil
}

// Claimed returns whose token it claims to be: only good to find the key.
func (t *OperatorToken) Claimed() string { return t.claims.Subject }

// Verify checks the token with the operator's key, for this audience, at this
// time. The algorithm is the key's. The error wraps [ErrUnsupported],
// [ErrSignature] or [ErrOperatorToken], and [ErrOperatorTime] if another clock
// would accept it.
func (t *OperatorToken) Verify(key crypto.PublicKey, audience string, now time.Time) (*OperatorClaims, error) {
	if _, ok := key.(*rsa.PublicKey); ok { // refused when it was added; see CheckOperatorKey
		return nil, fmt.Errorf("%w: an RSA key", ErrUnsupported)
	}
	if err := checkSignature(t.compact, key); err != nil {
		return nil, err
	}
	c := &t.claims
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	// A token for several could be shown by one of them to another.
	if audience == "" || !slices.Equal(c.Audience, []string{audience}) {
		bad("aud is %.80q, want %q", c.Audience, audience)
	}
	if c.ID == "" || len(c.ID) > maxOperatorID {
		bad("jti of %d bytes, want 1 to %d", len(c.ID), maxOperatorID)
	}
	if c.IssuedAt <= 0 {
		bad("iat %d is missing or none", c.IssuedAt)
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("%w: %w", ErrOperatorToken, errors.Join(errs...))
	}
	if err := c.checkTime(now); err != nil {
		return nil, fmt.Errorf("%w: %w: %w", ErrOperatorToken, ErrOperatorTime, err)
	}
	return &OperatorClaims{
		Operator:  c.Subject,
		Audience:  audience,
		ID:        c.ID,
		IssuedAt:  time.Unix(c.IssuedAt, 0).UTC(),
		ExpiresAt: time.Unix(c.ExpiresAt, 0).UTC(),
	}, nil
}

// checkTime says why the token is not good now, in one line: of a clock that is
// wrong everything else follows.
func (c *operatorClaims) checkTime(now time.Time) error {
	begins := max(c.IssuedAt, c.NotBefore)
	switch {
	case begins > now.Add(operatorSkew).Unix():
		return fmt.Errorf("it begins %s, and here it is %s", instant(time.Unix(begins, 0)), instant(now))
	case c.ExpiresAt <= now.Unix():
		return fmt.Errorf("it ended %s, and here it is %s", instant(time.Unix(c.ExpiresAt, 0)), instant(now))
	case c.ExpiresAt > now.Add(MaxOperatorTTL+operatorSkew).Unix():
		return fmt.Errorf("it ends %s, and here it is %s: want %v at most", instant(time.Unix(c.ExpiresAt, 0)), instant(now), MaxOperatorTTL)
	}
	return nil
}
