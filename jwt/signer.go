package jwt

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"strings"
	"time"

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
	sum := sha256.Sum256(der)
	return SignerID(hex.EncodeToString(sum[:])), nil
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
