package jwt

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"fmt"
	"slices"

	gojwt "github.com/golang-jwt/jwt/v5"
)

// The algorithms (RFC 7518 section 3.1, RFC 8037 section 3.1). The first one of
// a key type is the one that [Sign] uses; for RSA that is the only one that
// every release of Choria accepts.
const (
	algRS256 = "RS256"
	algRS384 = "RS384"
	algRS512 = "RS512"
	algES256 = "ES256"
	algEdDSA = "EdDSA"
)

// algorithmsOf returns the algorithms that a key of this type may be used
// with, nil if none.
func algorithmsOf(pub crypto.PublicKey) []string {
	switch pub.(type) {
	case *rsa.PublicKey:
		return []string{algRS256, algRS384, algRS512}
	case *ecdsa.PublicKey:
		return []string{algES256}
	case ed25519.PublicKey:
		return []string{algEdDSA}
	default:
		return nil
	}
}

// methodOf returns the implementation of one of our algorithms. Naming them
// here, instead of asking the library by name, keeps whatever else is
// registered with it, none among them, out of reach.
func methodOf(alg string) gojwt.SigningMethod {
	switch alg {
	case algRS256:
		return gojwt.SigningMethodRS256
	case algRS384:
		return gojwt.SigningMethodRS384
	case algRS512:
		return gojwt.SigningMethodRS512
	case algES256:
		return gojwt.SigningMethodES256
	case algEdDSA:
		return gojwt.SigningMethodEdDSA
	default:
		return nil
	}
}

// checkSignature verifies the signature of c with pub, and with the algorithm
// of c only if it is one for this type of key.
func checkSignature(c *compact, pub crypto.PublicKey) error {
	if !slices.Contains(algorithmsOf(pub), c.alg) {
		return fmt.Errorf("%w: algorithm %q with a key of type %T", ErrUnsupported, c.alg, pub)
	}
	if methodOf(c.alg).Verify(c.signingInput, c.signature, pub) != nil {
		return ErrSignature // the libraries say no more than that, each in its own words
	}
	return nil
}
