package seal

import (
	"crypto/ecdh"
	"crypto/hpke"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
)

// ErrKey means that something is no key to seal or to open with. The text
// around it says why, and never holds a private key. Correct the file, or sign
// a token with the right key.
var ErrKey = errors.New("not a usable seal key")

const (
	keyBytes = 32 // X25519: RFC 7748 section 6.1
	idBytes  = 12 // chosen: nobody makes another key with the id of this one, 2^96 tries
	idChars  = (idBytes + 2) / 3 * 4
)

// A PublicKey is what nodes seal to: an X25519 key whose private half only
// provisioners hold. Keys can be compared with ==. Make one with
// [ParsePublicKey] or [PrivateKey.Public]; the zero value is no key, and
// whatever is asked to seal to it returns [ErrKey].
//
// A PublicKey says nothing about who holds its private half. That is worth
// what the token is worth that named it.
type PublicKey struct {
	b [keyBytes]byte
}

// ParsePublicKey returns the key that s spells: 32 bytes in base64url without
// padding, as in a token's `extensions.muster.seal`, and nothing around it. A point
// of small order is refused when something is sealed to it. The error wraps [ErrKey].
func ParsePublicKey(s string) (PublicKey, error) {
	b, ok := decode64(s)
	if !ok || len(b) != keyBytes {
		// Only the beginning is quoted: somebody may have taken the private file.
		return PublicKey{}, fmt.Errorf("%w: public key of %d bytes that begins with %.12q, want %d bytes in base64url without padding", ErrKey, len(s), s, keyBytes)
	}
	return PublicKey{[keyBytes]byte(b)}, nil
}

// String returns k in the form of [ParsePublicKey].
func (k PublicKey) String() string { return base64.RawURLEncoding.EncodeToString(k.b[:]) }

// ID returns the short name of k in an envelope's `key`: the first 12 bytes of
// its SHA-256, 16 characters of base64url.
func (k PublicKey) ID() string {
	sum := sha256.Sum256(k.b[:])
	return base64.RawURLEncoding.EncodeToString(sum[:idBytes])
}

// A PrivateKey opens what was sealed to its public half. Printing one shows
// the public half only. Make one with [NewPrivateKey] or [GenerateKey].
type PrivateKey struct {
	public PublicKey

	// secret returns the key. It is a function because fmt prints everything
	// else, %s even through two pointers.
	secret func() hpke.PrivateKey
}

// NewPrivateKey returns key for use with an [Opener]. The error wraps [ErrKey]
// and means that key is not of X25519.
func NewPrivateKey(key *ecdh.PrivateKey) (*PrivateKey, error) {
	if key.Curve() != ecdh.X25519() {
		return nil, fmt.Errorf("%w: private key is not of X25519", ErrKey)
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

// GenerateKey returns a new key.
func GenerateKey() (*PrivateKey, error) {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate seal key: %w", err)
	}
	return NewPrivateKey(key)
}

// Public returns the public half of k.
func (k *PrivateKey) Public() PublicKey { return k.public }

// decode64 decodes base64url without padding and accepts one spelling only:
// encoding/base64 passes over line ends even when strict.
func decode64(s string) ([]byte, bool) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || base64.RawURLEncoding.EncodedLen(len(b)) != len(s) {
		return nil, false
	}
	return b, true
}
