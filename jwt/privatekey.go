package jwt

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"fmt"

	"muster/internal/keyfile"
)

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
