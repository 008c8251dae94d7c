// Package keyfile reads and writes private keys and other secrets. It refuses a regular file that group or world may
// access. No error contains a secret.
//
// Encryption protects keys on stolen disks and backups, but not against root on the running machine.
package keyfile

import (
	"bytes"
	"crypto"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"

	"github.com/youmark/pkcs8"
)

var (
	// ErrKey means that the bytes hold no usable key. The error text says what they hold.
	ErrKey = errors.New("unusable key")

	// ErrPassphrase means that the passphrase is missing or wrong.
	ErrPassphrase = errors.New("the key is encrypted")
)

// Rounds is the number of PBKDF2-HMAC-SHA256 iterations (OWASP 2023); a guess takes 0.2 s. Tests lower it.
var Rounds = 600_000

// Parse returns the only private key in PEM, a [crypto.Signer] or an *ecdh.PrivateKey. It reads PKCS #1, SEC 1 and
// PKCS #8, also encrypted as by OpenSSL 3, and skips other blocks.
//
// passphrase may be nil and is called at most once. Parse overwrites its result with zeros and returns its error.
func Parse(b []byte, passphrase func() ([]byte, error)) (crypto.PrivateKey, error) {
	block, err := privateBlock(b)
	if err != nil {
		return nil, err
	}
	return parseBlock(block, passphrase)
}

// Encrypted reports whether [Parse] needs a passphrase for b.
func Encrypted(b []byte) bool {
	block, err := privateBlock(b)
	return err == nil && block.Type == typeEncrypted
}

// PEM types of PKCS #8.
const (
	typePlain     = "PRIVATE KEY"
	typeEncrypted = "ENCRYPTED PRIVATE KEY"
)

// Blocks returns an error for an unreadable block, which pem.Decode would skip.
func Blocks(b []byte) ([]*pem.Block, error) {
	begun := bytes.Count(b, []byte("-----BEGIN "))
	var blocks []*pem.Block
	for {
		var block *pem.Block
		if block, b = pem.Decode(b); block == nil {
			break
		}
		blocks = append(blocks, block)
	}
	if len(blocks) < begun {
		return nil, fmt.Errorf("%d of %d PEM blocks cannot be read: truncated, altered, "+
			"or a line begins with a blank or a byte order mark", begun-len(blocks), begun)
	}
	return blocks, nil
}

func privateBlock(b []byte) (*pem.Block, error) {
	blocks, err := Blocks(b)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	var found *pem.Block
	var other string
	for _, block := range blocks {
		switch {
		case !strings.HasSuffix(block.Type, typePlain):
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
		return nil, fmt.Errorf("%w: %.40s only, want the private key that belongs to it",
			ErrKey, strings.ToLower(other))
	default:
		return nil, fmt.Errorf("%w: not PEM, want a private key", ErrKey)
	}
}

func parseBlock(block *pem.Block, passphrase func() ([]byte, error)) (crypto.PrivateKey, error) {
	var key any
	var err error
	switch {
	case block.Type == typeEncrypted:
		return decrypt(block.Bytes, passphrase)
	case block.Headers["DEK-Info"] != "":
		return nil, fmt.Errorf("%w: the key is encrypted in an obsolete format; "+
			"rewrite it with `openssl pkcs8 -topk8 -in OLD -out NEW`", ErrKey)
	case block.Type == typePlain:
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case block.Type == "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	case block.Type == "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(block.Bytes)
	default:
		return nil, fmt.Errorf("%w: PEM block %.40q, want PRIVATE KEY", ErrKey, block.Type)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	return key, nil
}

func decrypt(der []byte, passphrase func() ([]byte, error)) (key any, err error) {
	if passphrase == nil {
		return nil, fmt.Errorf("%w: a passphrase is needed", ErrPassphrase)
	}
	secret, err := passphrase()
	if err != nil {
		return nil, err
	}
	defer clear(secret)
	if len(secret) == 0 {
		// With an empty passphrase, the library would read the key as unencrypted.
		return nil, fmt.Errorf("%w: the passphrase is empty", ErrPassphrase)
	}
	// crypto/cipher panics on a bad ciphertext length or IV.
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
		return nil, fmt.Errorf("%w: the passphrase is wrong", ErrPassphrase)
	default:
		return nil, fmt.Errorf("%w: %v; rewrite it with "+
			"`openssl pkcs8 -topk8 -v2 aes-256-cbc -v2prf hmacWithSHA256 -in OLD -out NEW`", ErrKey, err)
	}
}

// Marshal returns PKCS #8 in PEM, encrypted unless passphrase is empty: PBES2 with AES-256-CBC and
// PBKDF2-HMAC-SHA256. If the key cannot be exported, as in an HSM, the error wraps [ErrKey].
func Marshal(key crypto.PrivateKey, passphrase []byte) ([]byte, error) {
	typ := typePlain
	if len(passphrase) > 0 {
		typ = typeEncrypted
	}
	der, err := pkcs8.MarshalPrivateKey(key, passphrase, &pkcs8.Opts{
		Cipher:  pkcs8.AES256CBC,
		KDFOpts: pkcs8.PBKDF2Opts{SaltSize: 16, IterationCount: Rounds, HMACHash: crypto.SHA256},
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: typ, Bytes: der}), nil
}

// Kind names the kind of a private or public key: "RSA", "P-384", "Ed25519", "X25519".
func Kind(key any) string {
	switch k := key.(type) {
	case interface{ Public() crypto.PublicKey }:
		return Kind(k.Public())
	case *rsa.PublicKey:
		return "RSA"
	case *ecdsa.PublicKey:
		return k.Curve.Params().Name
	case ed25519.PublicKey:
		return "Ed25519"
	case *ecdh.PublicKey:
		return fmt.Sprint(k.Curve())
	default:
		return fmt.Sprintf("%T", key)
	}
}
