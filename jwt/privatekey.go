package jwt

import (
	"crypto"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strings"

	"github.com/youmark/pkcs8"
)

// ParsePrivateKey reads the private half of a signer: PEM with one key in
// PKCS #1, PKCS #8, encrypted PKCS #8 (PBES2, what OpenSSL 3 writes) or SEC 1,
// or the seed of an Ed25519 key as 64 hex digits with an optional line end, as
// in Choria. Other PEM blocks beside the key, such as its certificate, are
// passed over.
//
// The function passphrase is called at most once, and only for an encrypted
// key; its result is overwritten with zeros afterwards, and its error is
// returned. It may be nil if there is no way to ask.
//
// The error wraps [ErrPassphrase] if another passphrase could help and
// [ErrKey] if nothing but another file can. It holds nothing of the key.
func ParsePrivateKey(b []byte, passphrase func() ([]byte, error)) (crypto.Signer, error) {
	if seed, ok := hexKey(b); ok {
		return ed25519.NewKeyFromSeed(seed), nil
	}
	block, err := privateBlock(b)
	if err != nil {
		return nil, err
	}
	key, err := parsePrivateBlock(block, passphrase)
	if err != nil {
		return nil, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("%w: %T cannot sign", ErrKey, key)
	}
	if err := checkPublic(signer.Public()); err != nil {
		return nil, err
	}
	return signer, nil
}

// privateBlock finds the one private key in PEM.
func privateBlock(b []byte) (*pem.Block, error) {
	var found *pem.Block
	var other string
	for {
		var block *pem.Block
		if block, b = pem.Decode(b); block == nil {
			break
		}
		switch {
		case !strings.HasSuffix(block.Type, "PRIVATE KEY"):
			other = block.Type
		case found != nil:
			return nil, fmt.Errorf("%w: several private keys, want one", ErrKey)
		default:
			found = block
		}
	}
	switch {
	case found != nil:
		return found, nil
	case other != "":
		return nil, fmt.Errorf("%w: %s only, want the private key that belongs to it", ErrKey, strings.ToLower(other))
	default:
		return nil, fmt.Errorf("%w: neither PEM nor 64 hex digits, want a private key", ErrKey)
	}
}

func parsePrivateBlock(block *pem.Block, passphrase func() ([]byte, error)) (any, error) {
	var key any
	var err error
	switch {
	case block.Type == "ENCRYPTED PRIVATE KEY":
		return decryptPKCS8(block.Bytes, passphrase)
	case block.Headers["DEK-Info"] != "":
		return nil, fmt.Errorf("%w: encrypted in a form long deprecated; "+
			"rewrite it with `openssl pkcs8 -topk8 -in OLD -out NEW`", ErrKey)
	case block.Type == "PRIVATE KEY":
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case block.Type == "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	case block.Type == "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(block.Bytes)
	case block.Type == "OPENSSH PRIVATE KEY":
		return nil, fmt.Errorf("%w: an OpenSSH key; "+
			"rewrite a copy of it with `ssh-keygen -p -m PKCS8 -f COPY`", ErrKey)
	default:
		return nil, fmt.Errorf("%w: PEM block %q, want PRIVATE KEY", ErrKey, block.Type)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	return key, nil
}

// decryptPKCS8 decrypts a PKCS #8 key with the passphrase.
func decryptPKCS8(der []byte, passphrase func() ([]byte, error)) (key any, err error) {
	if passphrase == nil {
		return nil, fmt.Errorf("%w: the key is encrypted and no passphrase was given", ErrPassphrase)
	}
	secret, err := passphrase()
	if err != nil {
		return nil, err
	}
	defer clear(secret)
	if len(secret) == 0 {
		// The library would take the key for one that is not encrypted.
		return nil, fmt.Errorf("%w: the key is encrypted and the passphrase is empty", ErrPassphrase)
	}
	// The library hands ciphertext of a ragged length, or an IV of the wrong
	// one, to crypto/cipher, which panics.
	defer func() {
		if recover() != nil {
			key, err = nil, fmt.Errorf("%w: the encrypted key is damaged", ErrKey)
		}
	}()
	key, err = pkcs8.ParsePKCS8PrivateKey(der, secret)
	switch {
	case err == nil:
		return key, nil
	case err.Error() == "pkcs8: incorrect password":
		return nil, fmt.Errorf("%w for the encrypted key", ErrPassphrase)
	default:
		return nil, fmt.Errorf("%w: %v; rewrite it with "+
			"`openssl pkcs8 -topk8 -v2 aes-256-cbc -v2prf hmacWithSHA256 -in OLD -out NEW`", ErrKey, err)
	}
}

// MarshalPrivateKey returns key as PKCS #8 in PEM, encrypted with passphrase
// unless that is empty: PBES2 with AES-256-CBC and 600,000 rounds of
// PBKDF2-HMAC-SHA256 (OWASP's figure of 2023), which [ParsePrivateKey] and
// OpenSSL read.
func MarshalPrivateKey(key crypto.Signer, passphrase []byte) ([]byte, error) {
	if err := checkPublic(key.Public()); err != nil {
		return nil, err
	}
	typ := "PRIVATE KEY"
	if len(passphrase) > 0 {
		typ = "ENCRYPTED PRIVATE KEY"
	}
	der, err := pkcs8.MarshalPrivateKey(key, passphrase, &pkcs8.Opts{
		Cipher:  pkcs8.AES256CBC,
		KDFOpts: pkcs8.PBKDF2Opts{SaltSize: 16, IterationCount: 600_000, HMACHash: crypto.SHA256},
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: typ, Bytes: der}), nil
}

// MarshalPublicKey returns pub as PKIX in PEM, which [ParseSigner] reads.
func MarshalPublicKey(pub crypto.PublicKey) ([]byte, error) {
	if err := checkPublic(pub); err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(pub)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}
