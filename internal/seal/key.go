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

// ErrKey means an unusable seal key. Its text never contains a private key.
var ErrKey = errors.New("not a usable seal key")

const (
	keyBytes = 32 // X25519: RFC 7748 section 6.1
	idBytes  = 12 // a second key with the same id takes 2^96 tries
	idChars  = (idBytes + 2) / 3 * 4
)

// A PublicKey is an X25519 key that nodes seal to. Keys can be compared with ==. Sealing to the zero value is
// [ErrKey].
type PublicKey struct {
	b [keyBytes]byte
}

// ParsePublicKey parses `extensions.muster.seal`. A point of small order is refused only when sealing. The error
// wraps [ErrKey].
func ParsePublicKey(s string) (PublicKey, error) {
	b, ok := decode64(s)
	if !ok || len(b) != keyBytes {
		// Quotes only the beginning: it may be the private key.
		return PublicKey{}, fmt.Errorf("%w: public key of %d bytes that begins with %.12q, "+
			"want %d bytes in base64url without padding", ErrKey, len(s), s, keyBytes)
	}
	return PublicKey{[keyBytes]byte(b)}, nil
}

// String inverts [ParsePublicKey].
func (k PublicKey) String() string { return base64.RawURLEncoding.EncodeToString(k.b[:]) }

// ID is 12 bytes of the key's SHA-256 in base64url.
func (k PublicKey) ID() string {
	sum := sha256.Sum256(k.b[:])
	return base64.RawURLEncoding.EncodeToString(sum[:idBytes])
}

// A PrivateKey shows only its public half when printed.
type PrivateKey struct {
	public PublicKey

	// secret is a function because fmt prints other fields.
	secret func() hpke.PrivateKey
}

// NewPrivateKey returns [ErrKey] if key is not of X25519.
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

// GenerateKey generates a key.
func GenerateKey() (*PrivateKey, error) {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate seal key: %w", err)
	}
	return NewPrivateKey(key)
}

// Public returns the public half.
func (k *PrivateKey) Public() PublicKey { return k.public }

// decode64 accepts one spelling only: encoding/base64 skips line ends even when strict.
func decode64(s string) ([]byte, bool) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || base64.RawURLEncoding.EncodedLen(len(b)) != len(s) {
		return nil, false
	}
	return b, true
}
