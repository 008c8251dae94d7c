package seal

import (
	"crypto/ecdh"
	"crypto/hpke"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
)

// ErrKey means an unusable seal key. The error text contains no private key.
var ErrKey = errors.New("not a usable seal key")

const (
	keyBytes = 32 // X25519: RFC 7748 section 6.1
	idBytes  = 12 // finding a second key with an id takes 2^96 tries
	idChars  = (idBytes + 2) / 3 * 4
)

// A PublicKey is an X25519 key that nodes seal to. Keys can be compared with ==. Sealing to the zero value fails
// with [ErrKey].
type PublicKey struct {
	b [keyBytes]byte
}

// ParsePublicKey parses a token's `extensions.muster.seal`. It accepts a point of small order; sealing refuses it.
// The error wraps [ErrKey].
func ParsePublicKey(s string) (PublicKey, error) {
	b, ok := decode64(s)
	if !ok || len(b) != keyBytes {
		// Only the beginning is quoted, because s may be a private key.
		return PublicKey{}, fmt.Errorf("%w: public key of %d bytes that begins with %.12q, "+
			"want %d bytes in base64url without padding", ErrKey, len(s), s, keyBytes)
	}
	return PublicKey{[keyBytes]byte(b)}, nil
}

// String inverts [ParsePublicKey].
func (k PublicKey) String() string { return base64.RawURLEncoding.EncodeToString(k.b[:]) }

// ID is the first 12 bytes of the key's SHA-256, in base64url.
func (k PublicKey) ID() string {
	sum := sha256.Sum256(k.b[:])
	return base64.RawURLEncoding.EncodeToString(sum[:idBytes])
}

// A PrivateKey shows only its public half when printed.
type PrivateKey struct {
	public PublicKey

	// secret is a function, because fmt would print other types.
	secret func() hpke.PrivateKey
}

// NewPrivateKey returns [ErrKey] unless key is an X25519 key.
func NewPrivateKey(key *ecdh.PrivateKey) (*PrivateKey, error) {
	if key.Curve() != ecdh.X25519() {
		return nil, fmt.Errorf("%w: private key is not an X25519 key", ErrKey)
	}
	k, err := hpke.NewDHKEMPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	return &PrivateKey{
		public: PublicKey{[keyBytes]byte(key.PublicKey().Bytes())},
		secret: func() hpke.PrivateKey { return k },
	}, nil
}

// Public returns the public half.
func (k *PrivateKey) Public() PublicKey { return k.public }

// decode64 accepts only one encoding of each value: encoding/base64 skips line ends even when strict.
func decode64(s string) ([]byte, bool) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || base64.RawURLEncoding.EncodedLen(len(b)) != len(s) {
		return nil, false
	}
	return b, true
}
