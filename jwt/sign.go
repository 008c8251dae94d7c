package jwt

import (
	"crypto"
	"encoding/base64"
	"fmt"

	"muster/internal/wire"
)

// Sign returns the token over c, signed with key: RS256 for an RSA key, ES256
// for P-256, EdDSA for Ed25519. It writes exactly the claims that it is given
// and sets none; times are cut to the second, and an empty organization stays
// away. So it also makes tokens that no verifier accepts, expired ones for example:
// use [Claims.Check] before. It does refuse claims that it could not read
// again, such as a count of uses without a jti, and a token of more than
// [MaxTokenBytes]. The error wraps [ErrKey] for a key that cannot sign tokens.
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

// signCompact returns the compact JWS over claims, with the first algorithm of the key.
func signCompact(key crypto.Signer, claims []byte) (string, error) {
	alg := algorithmsOf(key.Public())[0]
	input := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"`+alg+`","typ":"JWT"}`)) + "." +
		base64.RawURLEncoding.EncodeToString(claims)
	signature, err := methods[alg].Sign(input, key)
	return input + "." + base64.RawURLEncoding.EncodeToString(signature), err
}

// NewJTI returns a fresh id for a token.
func NewJTI() string { return wire.NewID() }
