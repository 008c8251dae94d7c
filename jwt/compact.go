package jwt

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"muster/internal/wire"
)

// MaxTokenBytes bounds the text of a token. Choria's tokens with one extension have up to 767 bytes.
const MaxTokenBytes = wire.MaxTokenBytes

type compact struct {
	alg          string
	signingInput string
	signature    []byte
	payload      []byte
	claims       Claims
	limits       Limits
}

// parse is strict. The error wraps ErrMalformed, ErrUnsupported or ErrLimit.
func parse(text string) (*compact, error) {
	if len(text) > MaxTokenBytes {
		return nil, fmt.Errorf("%w: %d bytes, limit %d", ErrMalformed, len(text), MaxTokenBytes)
	}
	parts := strings.SplitN(text, ".", 4)
	if len(parts) != 3 {
		return nil, fmt.Errorf("%w: not three parts separated by dots", ErrMalformed)
	}
	c := &compact{signingInput: text[:len(parts[0])+1+len(parts[1])]}
	header, err := decodePart("header", parts[0])
	if err == nil {
		c.alg, err = checkHeader(header)
	}
	if err == nil {
		c.signature, err = decodePart("signature", parts[2])
	}
	if err != nil {
		return nil, err
	}
	if c.payload, err = decodePart("claims", parts[1]); err != nil {
		return nil, err
	}
	if c.claims, err = decodeClaims(c.payload); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if c.limits, err = c.claims.Limits(); err != nil {
		return nil, err
	}
	return c, nil
}

// encoding/base64 skips line breaks even when strict: one token would have many texts.
func decodePart(name, part string) ([]byte, error) {
	if part == "" {
		return nil, fmt.Errorf("%w: the %s is empty", ErrMalformed, name)
	}
	if strings.ContainsAny(part, "\r\n") {
		return nil, fmt.Errorf("%w: the %s has a line break", ErrMalformed, name)
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(part)
	if err != nil {
		return nil, fmt.Errorf("%w: the %s is not base64url: %w", ErrMalformed, name, err)
	}
	return b, nil
}

// These header members would change how a token is verified, or supply a key (RFC 8725 sections 3.5 and 3.10).
var refusedMembers = []string{"crit", "b64", "zip", "enc", "jwk", "jku", "x5u", "x5c"}

// checkHeader ignores unknown members (RFC 7515 section 4), among them `kid`: signers are tried by key type.
func checkHeader(b []byte) (string, error) {
	var h struct {
		Algorithm *string `json:"alg"`
		Type      string  `json:"typ"`
	}
	var members map[string]json.RawMessage
	if err := errors.Join(wire.DecodeKnown(b, &h), json.Unmarshal(b, &members)); err != nil {
		return "", fmt.Errorf("%w: header: %w", ErrMalformed, err)
	}
	if h.Algorithm == nil {
		return "", fmt.Errorf("%w: header without an algorithm", ErrMalformed)
	}
	if methods[*h.Algorithm] == nil {
		return "", fmt.Errorf("%w: algorithm %.40q, want RS256, RS384, RS512, ES256, ES384 or EdDSA",
			ErrUnsupported, *h.Algorithm)
	}
	for _, name := range refusedMembers {
		if _, ok := members[name]; ok {
			return "", fmt.Errorf("%w: header with %s", ErrUnsupported, name)
		}
	}
	if h.Type != "" && !strings.EqualFold(h.Type, "JWT") {
		return "", fmt.Errorf("%w: type %.40q, want JWT", ErrUnsupported, h.Type)
	}
	return *h.Algorithm, nil
}
