package jwt

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"fmt"
	"slices"

	gojwt "github.com/golang-jwt/jwt/v5"
)

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
