package jwt

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"muster/internal/wire"
)

// MaxTokenBytes bounds the text of a token. The largest that Choria makes with
// one extension is 767 bytes; the bound leaves room to grow and keeps
// strangers from making us decode megabytes.
const MaxTokenBytes = wire.MaxTokenBytes

// compact is a token taken apart. Nothing in it is authenticated.
type compact struct {
	alg          string
	signingInput string
	signature    []byte
	payload      []byte // the claims as the token spells them
	claims       Claims
	limits       Limits
}

// parse takes a compact JWS (RFC 7515 section 7.1) apart, strictly. The error
// wraps ErrMalformed, ErrUnsupported or ErrLimit.
func parse(text string) (*compact, error) {
	if len(text) > MaxTokenBytes {
		return nil, fmt.Errorf("%w: %d bytes, limit %d", ErrMalformed, len(text), MaxTokenBytes)
	}
	parts := strings.SplitN(text, ".", 4)
	if len(parts) != 3 {
		return nil, fmt.Errorf("%w: not three parts with dots between them", ErrMalformed)
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

// decodePart decodes base64url without padding (RFC 7515 section 2). The
// decoder of encoding/base64 skips line breaks even when strict, which would
// give one token many texts.
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

// refusedMembers of a header would change
// how a token is verified: `crit` asks for extensions that we do not have, `b64`
// for another signing input, `zip` and `enc` belong to encryption, and the others
// bring or fetch a key, which only our configuration may do (RFC 8725 sections 3.5
// and 3.10).
var refusedMembers = []string{"crit", "b64", "zip", "enc", "jwk", "jku", "x5u", "x5c"}

// checkHeader returns the algorithm that a header names, if it is one of ours
// and the header has nothing that we refuse. Other members are ignored, as
// RFC 7515 section 4 wants it, among them `kid`: signers are tried by key type.
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
		return "", fmt.Errorf("%w: algorithm %.40q, want RS256, RS384, RS512, ES256 or EdDSA", ErrUnsupported, *h.Algorithm)
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
