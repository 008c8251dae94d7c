package seal

import (
	"crypto/ecdh"
	"crypto/hpke"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
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
// the public half only. Make one with [ParsePrivateKey], [NewPrivateKey] or
// [GenerateKey].
type PrivateKey struct {
	public PublicKey

	// secret returns the key in its two forms. It is a function because fmt
	// prints everything else, %s even through two pointers.
	secret func() (*ecdh.PrivateKey, hpke.PrivateKey)
}

// NewPrivateKey returns key for use with an [Opener]; for keys that were
// decrypted elsewhere. The error wraps [ErrKey] and means that key is nil or
// not of X25519.
func NewPrivateKey(key *ecdh.PrivateKey) (*PrivateKey, error) {
	if key == nil || key.Curve() != ecdh.X25519() {
		return nil, fmt.Errorf("%w: private key is not of X25519", ErrKey)
	}
	k, err := hpke.NewDHKEMPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	return &PrivateKey{
		public: PublicKey{[keyBytes]byte(key.PublicKey().Bytes())},
		secret: func() (*ecdh.PrivateKey, hpke.PrivateKey) { return key, k },
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

// ParsePrivateKey returns the key in one PEM block PRIVATE KEY, which is
// unencrypted PKCS #8 (RFC 5958, RFC 8410) as `openssl genpkey -algorithm
// X25519` writes it. Text before the block is ignored, anything but blanks
// after it is refused. The error wraps [ErrKey].
func ParsePrivateKey(text []byte) (*PrivateKey, error) {
	block, rest := pem.Decode(text)
	switch {
	case block == nil:
		return nil, fmt.Errorf("%w: no PEM block", ErrKey)
	case strings.TrimSpace(string(rest)) != "":
		return nil, fmt.Errorf("%w: %d bytes after the PEM block, want one key in a file", ErrKey, len(rest))
	case block.Type == "ENCRYPTED PRIVATE KEY":
		return nil, fmt.Errorf("%w: the private key is encrypted", ErrKey)
	case block.Type != "PRIVATE KEY":
		return nil, fmt.Errorf("%w: PEM block %.40q, want \"PRIVATE KEY\"", ErrKey, block.Type)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	x, ok := key.(*ecdh.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%w: private key is %T, want X25519", ErrKey, key)
	}
	return NewPrivateKey(x)
}

// ParsePrivateKeys returns one key for each text, in their order, or an error
// that names every text that [ParsePrivateKey] refuses by its place, from 1.
func ParsePrivateKeys(texts ...[]byte) ([]*PrivateKey, error) {
	keys := make([]*PrivateKey, 0, len(texts))
	var errs []error
	for i, text := range texts {
		k, err := ParsePrivateKey(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("seal key %d of %d: %w", i+1, len(texts), err))
			continue
		}
		keys = append(keys, k)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return keys, nil
}

// Public returns the public half of k.
func (k *PrivateKey) Public() PublicKey { return k.public }

// MarshalPEM returns k in the form of [ParsePrivateKey]: a secret, for a file
// of mode 0600. The error wraps [ErrKey] if k is the zero value.
func (k *PrivateKey) MarshalPEM() ([]byte, error) {
	if k == nil || k.secret == nil {
		return nil, fmt.Errorf("encode seal key: %w: no key", ErrKey)
	}
	key, _ := k.secret()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode seal key %q: %w", k.public.ID(), err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// decode64 decodes base64url without padding and accepts one spelling only:
// encoding/base64 passes over line ends even when strict.
func decode64(s string) ([]byte, bool) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || base64.RawURLEncoding.EncodedLen(len(b)) != len(s) {
		return nil, false
	}
	return b, true
}
