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

// methods are the algorithms (RFC 7518 section 3.1, RFC 8037 section 3.1). Naming them
// here, instead of asking the library by name, keeps whatever else is
// registered with it, none among them, out of reach.
var methods = map[string]gojwt.SigningMethod{
	"RS256": gojwt.SigningMethodRS256,
	"RS384": gojwt.SigningMethodRS384,
	"RS512": gojwt.SigningMethodRS512,
	"ES256": gojwt.SigningMethodES256,
	"EdDSA": gojwt.SigningMethodEdDSA,
}

// algorithmsOf returns the algorithms that a key of this type may be used
// with, nil if none. The first one is the one that [Sign] uses; for RSA that is the only one that
// every release of Choria accepts.
func algorithmsOf(pub crypto.PublicKey) []string {
	switch pub.(type) {
	case *rsa.PublicKey:
		return []string{"RS256", "RS384", "RS512"}
	case *ecdsa.PublicKey:
		return []string{"ES256"}
	case ed25519.PublicKey:
		return []string{"EdDSA"}
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
	if methods[c.alg].Verify(c.signingInput, c.signature, pub) != nil {
		return ErrSignature // the libraries say no more than that, each in its own words
	}
	return nil
}
