package trust

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"

	"muster/internal/inputfile"
	"muster/internal/keyfile"
	"muster/internal/wire"
	"muster/server/advice"
)

const remedyExposed = "run that command, and start the agent again if it has stopped; " +
	"if the key may have been read, revoke the node and enroll it with a new key"

// ub-common-name of RFC 5280 appendix A.1. A longer identity is only in the SAN.
const maxCommonName = 64

// NewKey returns a new P-256 key.
func NewKey() (crypto.Signer, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

// ReadKey reads a private key of a kind that provisioners certify. If other users can read it, the error wraps
// [keyfile.ErrExposed]. Errors never show the key.
func ReadKey(path string) (crypto.Signer, error) {
	b, err := keyfile.ReadSecret(path, inputfile.Configured)
	if errors.Is(err, keyfile.ErrExposed) {
		return nil, advice.New(err, remedyExposed)
	}
	if err != nil {
		return nil, err
	}
	key, err := keyfile.Parse(b, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	switch k := key.(type) {
	case *ecdsa.PrivateKey:
		if k.Curve == elliptic.P256() || k.Curve == elliptic.P384() {
			return k, nil
		}
	case *rsa.PrivateKey:
		if n := k.N.BitLen(); n >= 2048 && n <= 4096 {
			return k, nil
		}
	case ed25519.PrivateKey:
		return k, nil
	}
	return nil, fmt.Errorf("%s: a key of kind %s, want P-256, P-384, Ed25519 or RSA of 2048 to 4096 bits", path,
		keyfile.Kind(key))
}

// NewCSR returns a certificate request (PKCS #10, DER) for id, signed by key.
func NewCSR(key crypto.Signer, id wire.Identity) ([]byte, error) {
	template := x509.CertificateRequest{DNSNames: []string{string(id)}}
	if len(id) <= maxCommonName {
		template.Subject = pkix.Name{CommonName: string(id)}
	}
	return x509.CreateCertificateRequest(rand.Reader, &template, key)
}

// RequestedIdentity returns the identity in csr, which is not parsed. The error means that csr is not a valid request
// by key.
func RequestedIdentity(csr []byte, key crypto.Signer) (wire.Identity, error) {
	r, err := x509.ParseCertificateRequest(csr)
	if err == nil {
		err = r.CheckSignature()
	}
	switch {
	case err != nil:
		return "", err
	case !wire.SamePublicKey(r.PublicKey, key.Public()):
		return "", errors.New("a certificate request by another key")
	case len(r.DNSNames) != 1:
		return "", fmt.Errorf("a certificate request for %d names, want one", len(r.DNSNames))
	}
	return wire.Identity(r.DNSNames[0]), nil
}
