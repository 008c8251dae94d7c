package server

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"

	"muster/internal/keyfile"
	"muster/internal/wire"
)

// remedyExposed is about a key that others may read.
const remedyExposed = "close the file with that command, and start the agent again if it has ended; " +
	"if somebody may have read the key, have the node revoked and enroll it anew with another"

// maxCommonName is ub-common-name of RFC 5280 appendix A.1. A longer identity
// goes into the SAN alone.
const maxCommonName = 64

// newKey makes a node's key.
func newKey() (crypto.Signer, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

// encodeKey returns key as PKCS #8 in PEM.
func encodeKey(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// readKey reads a private key, in PKCS #8, SEC 1 or PKCS #1, of the kinds that
// provisioners certify. One that others may read is refused: the error wraps
// [keyfile.ErrExposed]. What is no file is not waited for. No error says anything of
// the key.
func readKey(path string) (crypto.Signer, error) {
	b, err := keyfile.ReadFile(path)
	if errors.Is(err, keyfile.ErrExposed) {
		return nil, &cause{what: err, remedy: remedyExposed}
	}
	if err != nil {
		return nil, err
	}
	key, err := parseKey(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return key, nil
}

func parseKey(b []byte) (crypto.Signer, error) {
	block, rest := pem.Decode(b)
	if block != nil && block.Type == "EC PARAMETERS" { // openssl writes it before an SEC 1 key
		block, _ = pem.Decode(rest)
	}
	if block == nil {
		return nil, errors.New("not a private key in PEM")
	}
	var key any
	var err error
	switch block.Type {
	case "PRIVATE KEY":
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(block.Bytes)
	case "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	default:
		return nil, fmt.Errorf("a %.40q block, want an unencrypted private key", block.Type)
	}
	if err != nil {
		return nil, errors.New("a private key that does not parse")
	}
	switch k := key.(type) {
	case *ecdsa.PrivateKey:
		if k.Curve == elliptic.P256() || k.Curve == elliptic.P384() {
			return k, nil
		}
		return nil, fmt.Errorf("a key on curve %s, want P-256 or P-384", k.Curve.Params().Name)
	case *rsa.PrivateKey:
		if n := k.N.BitLen(); n < 2048 || n > 4096 {
			return nil, fmt.Errorf("an RSA key of %d bits, want 2048 to 4096", n)
		}
		return k, nil
	case ed25519.PrivateKey:
		return k, nil
	}
	return nil, fmt.Errorf("a key of type %T", key)
}

// newCSR returns a certificate request (PKCS #10, DER) for id, signed by key.
func newCSR(key crypto.Signer, id wire.Identity) ([]byte, error) {
	template := x509.CertificateRequest{DNSNames: []string{string(id)}}
	if len(id) <= maxCommonName {
		template.Subject = pkix.Name{CommonName: string(id)}
	}
	return x509.CreateCertificateRequest(rand.Reader, &template, key)
}

// requestedIdentity returns the identity that csr asks a certificate for; it is only
// to be compared with a parsed one. The error means that csr is no whole request by key.
func requestedIdentity(csr []byte, key crypto.Signer) (wire.Identity, error) {
	r, err := x509.ParseCertificateRequest(csr)
	if err == nil {
		err = r.CheckSignature()
	}
	switch {
	case err != nil:
		return "", err
	case !samePublicKey(r.PublicKey, key.Public()):
		return "", errors.New("a certificate request by another key")
	case len(r.DNSNames) != 1:
		return "", fmt.Errorf("a certificate request for %d names, want one", len(r.DNSNames))
	}
	return wire.Identity(r.DNSNames[0]), nil
}

// samePublicKey compares two public keys of the kinds that parseKey accepts.
func samePublicKey(a, b crypto.PublicKey) bool {
	k, ok := a.(interface{ Equal(crypto.PublicKey) bool })
	return ok && k.Equal(b)
}
