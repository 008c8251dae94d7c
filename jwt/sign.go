package jwt

import (
	"cmp"
	"crypto"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"muster/internal/wire"
)

// Sign returns the token over c, signed with key: RS256 for an RSA key, ES256
// for P-256, EdDSA for Ed25519. It writes exactly the claims that it is given
// and sets none; times are cut to the second, and an empty organization stays
// away. So it also makes tokens that nobody accepts, expired ones for example:
// use [Claims.Check] before. It does refuse claims that it could not read
// again, such as a count of uses without a jti, and a token of more than
// [MaxTokenBytes], of which it names the longest claim. The error wraps [ErrKey] for a key that cannot sign tokens.
func Sign(key crypto.Signer, c Claims) (string, error) {
	if key == nil {
		return "", fmt.Errorf("sign token: %w: no key", ErrKey)
	}
	pub := key.Public()
	if err := checkPublic(pub); err != nil {
		return "", fmt.Errorf("sign token: %w", err)
	}
	body, err := c.encode()
	if err != nil {
		return "", fmt.Errorf("sign token: %w", err)
	}
	alg := algorithmsOf(pub)[0]
	header, err := json.Marshal(struct {
		Alg string `json:"alg"`
		Typ string `json:"typ"`
	}{alg, "JWT"})
	if err != nil {
		return "", fmt.Errorf("sign token: %w", err)
	}
	input := base64.RawURLEncoding.EncodeToString(header) + "." + base64.RawURLEncoding.EncodeToString(body)
	signature, err := methodOf(alg).Sign(input, key)
	if err != nil {
		return "", fmt.Errorf("sign token: %w", err)
	}
	text := input + "." + base64.RawURLEncoding.EncodeToString(signature)
	if len(text) > MaxTokenBytes {
		return "", fmt.Errorf("sign token: it would have %d bytes, limit %d; shorten %s", len(text), MaxTokenBytes, longest(body))
	}
	if _, err := parse(text); err != nil {
		return "", fmt.Errorf("sign token: it would be refused: %w", err)
	}
	return text, nil
}

// longest names the longest of the claims, and its size.
func longest(body []byte) string {
	var members map[string]json.RawMessage
	_ = json.Unmarshal(body, &members) // made a moment ago
	name := ""
	for _, n := range slices.Sorted(maps.Keys(members)) {
		if name == "" || len(members[n]) > len(members[name]) {
			name = n
		}
	}
	said := map[string]string{"cht": "the secret", "chu": "the list of brokers", "chpwd": "the password", "extensions": "the extensions"}
	return fmt.Sprintf("%s, %d bytes before encoding", cmp.Or(said[name], fmt.Sprintf("the claim %q", name)), len(members[name]))
}

// NewJTI returns a fresh id for a token.
func NewJTI() string { return wire.NewID() }
