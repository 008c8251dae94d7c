package jwt

import (
	"crypto"
	"encoding/base64"
	"fmt"

	"muster/internal/wire"
)

// Sign signs c unchanged, even if it has expired: call [Claims.Check] first. It refuses claims that [Peek] would
// refuse, and tokens longer than [MaxTokenBytes]. The error wraps [ErrKey] for an unsuitable key.
func Sign(key crypto.Signer, c Claims) (string, error) {
	text, err := sign(key, c)
	if err != nil {
		return "", fmt.Errorf("sign token: %w", err)
	}
	return text, nil
}

func sign(key crypto.Signer, c Claims) (string, error) {
	if key == nil {
		return "", fmt.Errorf("%w: no key", ErrKey)
	}
	if err := checkPublic(key.Public()); err != nil {
		return "", err
	}
	body, err := c.encode()
	if err != nil {
		return "", err
	}
	text, err := signCompact(key, body)
	if err != nil {
		return "", err
	}
	if _, err := parse(text); err != nil {
		return "", fmt.Errorf("it would be refused: %w", err)
	}
	return text, nil
}

func signCompact(key crypto.Signer, claims []byte) (string, error) {
	alg := algorithmsOf(key.Public())[0]
	input := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"`+alg+`","typ":"JWT"}`)) + "." +
		base64.RawURLEncoding.EncodeToString(claims)
	signature, err := methods[alg].Sign(input, key)
	return input + "." + base64.RawURLEncoding.EncodeToString(signature), err
}

// NewJTI returns a new random id for a token.
func NewJTI() string { return wire.NewID() }
