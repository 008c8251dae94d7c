package seal

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"muster/internal/wire"
)

const (
	tokenFamily = "muster-sealed-" // of every version; no JWS begins so
	tokenPrefix = tokenFamily + "v1."

	nkeyChars = 56 // a public nkey: 35 bytes in base32

	// MaxSealedTokenBytes is the longest text of [SealToken], for a token of
	// [wire.MaxTokenBytes]. With the rest of CONNECT, 370 bytes from nats.go, it fits the
	// 16,384 bytes of max_control_line that muster configures.
	MaxSealedTokenBytes = len(tokenPrefix) + (idBytes*8+5)/6 + 1 + (encapsulatedBytes*8+5)/6 + 1 + (maxTokenCiphertext*8+5)/6

	maxTokenCiphertext = (lengthBytes+nkeyChars+wire.MaxTokenBytes+padTo-1)/padTo*padTo + tagBytes
)

// SealToken returns what a node in sealed mode presents as CONNECT's auth_token:
//
//	muster-sealed-v1.<key id>.<encapsulated key>.<ciphertext>
//
// the last two in base64url without padding. Sealed are the token and
// nkeyPublic, the public user nkey with which this connection signs the
// broker's nonce. A node makes a new nkey for each connection. How long it gets
// says [SealedTokenBytes].
//
// The error wraps [wire.ErrTooLarge] for a token above [wire.MaxTokenBytes] or
// [ErrKey] if k is the zero value; it prints neither token nor nkey, which
// might be a seed by mistake.
//
//nolint:revive // seal.Token would be a noun for a deed; this is the opposite of OpenToken
func SealToken(k PublicKey, token wire.Secret, nkeyPublic string) (string, error) {
	switch {
	case token == "":
		return "", errors.New("seal token: empty")
	case IsSealedToken(string(token)):
		return "", errors.New("seal token: it is sealed already")
	case len(token) > wire.MaxTokenBytes:
		return "", fmt.Errorf("seal token: %w: %d bytes, limit %d", wire.ErrTooLarge, len(token), wire.MaxTokenBytes)
	case !validNkey(nkeyPublic):
		return "", errors.New("seal token: nkey is not a public user key, U and 55 more characters of base32")
	}
	id := k.ID()
	s, _, err := k.Seal(PurposeConnect, []byte(nkeyPublic+string(token)), tokenAAD(id))
	if err != nil {
		return "", fmt.Errorf("token: %w", err)
	}
	enc := base64.RawURLEncoding
	return tokenPrefix + id + "." + enc.EncodeToString(s.Encapsulated) + "." + enc.EncodeToString(s.Ciphertext), nil
}

// SealedTokenBytes returns how long [SealToken] makes a token of n bytes. A NATS
// broker that muster did not configure takes 4,096 bytes of CONNECT, of which
// 370 are not the token, so there n may be 2,500 at most.
func SealedTokenBytes(n int) int {
	enc := base64.RawURLEncoding
	return len(tokenPrefix) + enc.EncodedLen(idBytes) + 1 + enc.EncodedLen(encapsulatedBytes) + 1 + enc.EncodedLen(padded(nkeyChars+n)+tagBytes)
}

// IsSealedToken reports whether s is a sealed token, of this version or of
// another: something for [Opener.OpenToken] and never for a JWT parser.
func IsSealedToken(s string) bool { return strings.HasPrefix(s, tokenFamily) }

// OpenToken opens what [SealToken] made. Neither token nor nkey is
// authenticated. The caller must check that nkeyPublic has signed this
// connection's nonce, or a listener could present what it recorded, and then
// verify the token. The error wraps [ErrUnknownKey] or [ErrOpen].
func (o *Opener) OpenToken(s string) (token wire.Secret, nkeyPublic string, err error) {
	if len(s) > MaxSealedTokenBytes {
		return "", "", fmt.Errorf("token: %w: %d bytes, limit %d", ErrOpen, len(s), MaxSealedTokenBytes)
	}
	rest, ok := strings.CutPrefix(s, tokenPrefix)
	if !ok {
		return "", "", fmt.Errorf("token: %w: does not begin with %q", ErrOpen, tokenPrefix)
	}
	parts := strings.Split(rest, ".")
	if len(parts) != 3 {
		return "", "", fmt.Errorf("token: %w: %d parts, want key id, encapsulated key and ciphertext", ErrOpen, len(parts))
	}
	enc, ok1 := decode64(parts[1])
	ct, ok2 := decode64(parts[2])
	if !ok1 || !ok2 {
		return "", "", fmt.Errorf("token: %w: not base64url without padding", ErrOpen)
	}
	b, _, err := o.Open(PurposeConnect, &Sealed{Key: parts[0], Encapsulated: enc, Ciphertext: ct}, tokenAAD(parts[0]))
	if err != nil {
		return "", "", fmt.Errorf("token: %w", err)
	}
	if len(b) <= nkeyChars || len(b) > nkeyChars+wire.MaxTokenBytes {
		return "", "", fmt.Errorf("token: %w: %d bytes in it, want %d for the nkey and 1 to %d for the token", ErrOpen, len(b), nkeyChars, wire.MaxTokenBytes)
	}
	nkey, text := string(b[:nkeyChars]), string(b[nkeyChars:])
	if !validNkey(nkey) || IsSealedToken(text) {
		return "", "", fmt.Errorf("token: %w: no nkey and token in it", ErrOpen)
	}
	return wire.Secret(text), nkey, nil
}

// tokenAAD binds a sealed token to what stands before it.
func tokenAAD(id string) []byte { return []byte(tokenPrefix + id) }

// validNkey reports whether s has the form of a public user nkey. Its checksum
// is for whoever verifies a signature by it.
func validNkey(s string) bool {
	return len(s) == nkeyChars && s[0] == 'U' && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == ""
}
