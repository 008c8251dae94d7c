package jwt

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"time"

	gojwt "github.com/golang-jwt/jwt/v5"

	"muster/internal/keyfile"
	"muster/internal/wire"
)

// A SignerID is the lower-case hex SHA-256 of a key's SubjectPublicKeyInfo.
type SignerID string

// A Signer is a key whose tokens are accepted, with its limits.
type Signer struct {
	// Name is for operators. If it is empty, [NewVerifier] uses the start of the key's [SignerID].
	Name string

	// Key is an *rsa.PublicKey of 2048 to 8192 bits, an *ecdsa.PublicKey on P-256 or P-384, or an
	// ed25519.PublicKey.
	Key crypto.PublicKey

	// NotBefore and NotAfter bound when the signer's tokens are accepted, both inclusive (RFC 5280 section 4.1.2.5).
	// Zero: no bound.
	NotBefore, NotAfter time.Time

	// Identities selects the nodes that its tokens may admit; empty: all.
	Identities []wire.Pattern

	// Sites are the sites that accept its tokens; empty: every site.
	Sites []Site
}

// RFC 7518 section 3.3 requires 2048 or more; the upper bound is crypto/tls's.
const (
	minRSABits = 2048
	maxRSABits = 8192
)

// ParseSigner reads the public key of a signer: a certificate in PEM, a public key in PEM (PKIX or PKCS #1), or an
// Ed25519 key as 64 hex digits, as in Choria. A certificate also bounds the signer's validity; its chain is not
// checked. Several PEM blocks are refused as ambiguous. The error wraps [ErrKey].
//
// Choria writes the seed of an Ed25519 key in the same form, so ParseSigner cannot notice a seed given by mistake.
func ParseSigner(b []byte) (Signer, error) {
	if key, ok := hexKey(b); ok {
		return Signer{Key: ed25519.PublicKey(key)}, nil
	}
	blocks, err := keyfile.Blocks(b)
	switch {
	case err != nil:
		return Signer{}, fmt.Errorf("%w: %w", ErrKey, err)
	case len(blocks) == 0:
		return Signer{}, fmt.Errorf("%w: neither PEM nor 64 hex digits, want a certificate or a public key", ErrKey)
	case strings.HasSuffix(blocks[0].Type, "PRIVATE KEY"):
		return Signer{}, fmt.Errorf("%w: a private key, want the certificate or public key made with it", ErrKey)
	case len(blocks) > 1:
		return Signer{}, fmt.Errorf("%w: several PEM blocks, want one certificate or public key", ErrKey)
	}
	s, err := parseSignerBlock(blocks[0])
	if err != nil {
		return Signer{}, fmt.Errorf("%w: %w", ErrKey, err)
	}
	if err := checkPublic(s.Key); err != nil {
		return Signer{}, err
	}
	return s, nil
}

func parseSignerBlock(block *pem.Block) (s Signer, err error) {
	switch block.Type {
	case "CERTIFICATE":
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return s, err
		}
		return Signer{
			Name:      cert.Subject.CommonName,
			Key:       cert.PublicKey,
			NotBefore: cert.NotBefore.UTC(),
			NotAfter:  cert.NotAfter.UTC(),
		}, nil
	case "PUBLIC KEY":
		s.Key, err = x509.ParsePKIXPublicKey(block.Bytes)
	case "RSA PUBLIC KEY":
		s.Key, err = x509.ParsePKCS1PublicKey(block.Bytes)
	default:
		err = fmt.Errorf("PEM block %q, want CERTIFICATE or PUBLIC KEY", block.Type)
	}
	return s, err
}

func hexKey(b []byte) ([]byte, bool) {
	b = bytes.TrimSuffix(bytes.TrimSuffix(b, []byte("\n")), []byte("\r"))
	if len(b) != 2*ed25519.PublicKeySize {
		return nil, false
	}
	key, err := hex.DecodeString(string(b))
	return key, err == nil
}

// Fingerprint returns the id of a signer's public key. The error wraps [ErrKey].
func Fingerprint(pub crypto.PublicKey) (SignerID, error) {
	if err := checkPublic(pub); err != nil {
		return "", err
	}
	der, err := x509.MarshalPKIXPublicKey(pub)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrKey, err)
	}
	return SignerID(wire.Sum(der)), nil
}

func checkPublic(pub crypto.PublicKey) error {
	switch k := pub.(type) {
	case *rsa.PublicKey:
		if bits := k.N.BitLen(); bits < minRSABits || bits > maxRSABits {
			return fmt.Errorf("%w: RSA key of %d bits, want %d to %d", ErrKey, bits, minRSABits, maxRSABits)
		}
	case *ecdsa.PublicKey:
		if k.Curve != elliptic.P256() && k.Curve != elliptic.P384() {
			return fmt.Errorf("%w: curve %s, want P-256 or P-384", ErrKey, k.Curve.Params().Name)
		}
	case ed25519.PublicKey:
		if len(k) != ed25519.PublicKeySize {
			return fmt.Errorf("%w: Ed25519 key of %d bytes, want %d", ErrKey, len(k), ed25519.PublicKeySize)
		}
	case nil: // a kind of key that crypto/x509 does not know
		return fmt.Errorf("%w: unknown kind of key, want RSA, P-256, P-384 or Ed25519", ErrKey)
	default:
		return fmt.Errorf("%w: %s, want RSA, P-256, P-384 or Ed25519", ErrKey, keyfile.Kind(pub))
	}
	return nil
}

// RFC 7518 section 3.1 and RFC 8037 section 3.1. This table keeps every other algorithm of the library, such as none,
// out of reach.
var methods = map[string]gojwt.SigningMethod{
	"RS256": gojwt.SigningMethodRS256,
	"RS384": gojwt.SigningMethodRS384,
	"RS512": gojwt.SigningMethodRS512,
	"ES256": gojwt.SigningMethodES256,
	"ES384": gojwt.SigningMethodES384,
	"EdDSA": gojwt.SigningMethodEdDSA,
}

// [Sign] uses the first algorithm: for RSA, every release of Choria accepts only this one.
func algorithmsOf(pub crypto.PublicKey) []string {
	switch k := pub.(type) {
	case *rsa.PublicKey:
		return []string{"RS256", "RS384", "RS512"}
	case *ecdsa.PublicKey: // each curve has one algorithm
		if k.Curve == elliptic.P384() {
			return []string{"ES384"}
		}
		return []string{"ES256"}
	case ed25519.PublicKey:
		return []string{"EdDSA"}
	default:
		return nil
	}
}

func checkSignature(c *compact, pub crypto.PublicKey) error {
	if !slices.Contains(algorithmsOf(pub), c.alg) {
		return fmt.Errorf("%w: algorithm %q with a key of type %T", ErrUnsupported, c.alg, pub)
	}
	if methods[c.alg].Verify(c.signingInput, c.signature, pub) != nil {
		return ErrSignature
	}
	return nil
}

// ParsePrivateKey reads the private key of a signer: PEM with one key in PKCS #1, PKCS #8, encrypted PKCS #8 or SEC
// 1, or an Ed25519 seed as 64 hex digits, as in Choria.
//
// It calls passphrase at most once, and only for an encrypted key. It returns that function's error, and overwrites its
// result with zeros. The error wraps [ErrPassphrase] if another passphrase may help, else [ErrKey].
func ParsePrivateKey(b []byte, passphrase func() ([]byte, error)) (crypto.Signer, error) {
	if seed, ok := hexKey(b); ok {
		return ed25519.NewKeyFromSeed(seed), nil
	}
	if !bytes.Contains(b, []byte("-----BEGIN ")) {
		return nil, fmt.Errorf("%w: neither PEM nor 64 hex digits, want a private key", ErrKey)
	}
	key, err := keyfile.Parse(b, passphrase)
	if err != nil {
		return nil, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("%w: %s cannot sign, want an RSA, P-256, P-384 or Ed25519 key", ErrKey,
			keyfile.Kind(key))
	}
	if err := checkPublic(signer.Public()); err != nil {
		return nil, err
	}
	return signer, nil
}

// MarshalPublicKey returns pub as PKIX in PEM, which [ParseSigner] reads.
func MarshalPublicKey(pub crypto.PublicKey) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(pub)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}
