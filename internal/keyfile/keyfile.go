// Package keyfile reads and writes private keys: PKCS #8, plain or encrypted
// with a passphrase, PKCS #1 and SEC 1, all in PEM. The provisioner's
// authority, seal and signer keys are such files, and so are their
// passphrases' own, which [ReadSecret] and [ReadLine] read.
//
// # Trust
//
// A file is taken at its word, since whoever can write it is the operator. A
// regular file that its group or everybody may read is refused, because then
// it is a secret no more, and the operator would not find out otherwise. No
// error of this package holds any of a key or of a passphrase.
//
// Encryption protects a disk that was stolen while the machine was off, and a
// backup. It does not protect from root on the machine that runs, which can
// read the key from memory.
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

// Reasons why a key cannot be read. Every error of [Parse] but that of the
// function that asks wraps exactly one of them.
var (
	// ErrKey means that the bytes hold no key that can be used here. The text
	// around it says what they hold, and what to do; only another file helps.
	ErrKey = errors.New("unusable key")

	// ErrPassphrase means that the key is encrypted and the passphrase is
	// missing or wrong: ask for another one.
	ErrPassphrase = errors.New("wrong passphrase")
)

// Rounds of PBKDF2-HMAC-SHA256 make one guess of a passphrase cost a fifth of a
// second of a core: OWASP's figure of 2023. Tests have fewer: the race detector makes each ten times as slow.
var Rounds = 600_000

// Parse returns the one private key in PEM: PKCS #1, PKCS #8, encrypted PKCS #8
// (PBES2 with PBKDF2 or scrypt, what OpenSSL 3 writes) or SEC 1. It is a
// [crypto.Signer], or an *ecdh.PrivateKey for X25519. Blocks beside it that are
// no private keys, such as its certificate, are passed over.
//
// The function passphrase is called at most once, and only for an encrypted
// key; its result is overwritten with zeros afterwards, and its error is
// returned. It may be nil if there is no way to ask.
func Parse(b []byte, passphrase func() ([]byte, error)) (crypto.PrivateKey, error) {
	block, err := privateBlock(b)
	if err != nil {
		return nil, err
	}
	return parseBlock(block, passphrase)
}

// Encrypted reports whether b holds a key that [Parse] would need a passphrase
// for. It says false of what is no key at all.
func Encrypted(b []byte) bool {
	block, err := privateBlock(b)
	return err == nil && block.Type == typeEncrypted
}

// The PEM types of PKCS #8.
const (
	typePlain     = "PRIVATE KEY"
	typeEncrypted = "ENCRYPTED PRIVATE KEY"
)

// Blocks returns the PEM blocks in b in their order, none if there are none. Text
// outside of them is passed over. One that cannot be read is an error: the decoder of
// encoding/pem goes on to the next, which would be taken for the one that was meant.
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
		return nil, fmt.Errorf("%d of %d PEM blocks cannot be read: cut short, altered, or with something in front of a line, be it a blank or a byte order mark", begun-len(blocks), begun)
	}
	return blocks, nil
}

// privateBlock finds the one private key in PEM.
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
		return nil, fmt.Errorf("%w: %.40s only, want the private key that belongs to it", ErrKey, strings.ToLower(other))
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
		return nil, fmt.Errorf("%w: encrypted in a form long deprecated; "+
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

// decrypt decrypts a PKCS #8 key with the passphrase.
func decrypt(der []byte, passphrase func() ([]byte, error)) (key any, err error) {
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

// Marshal returns key as PKCS #8 in PEM, encrypted with passphrase unless that
// is empty: PBES2 with AES-256-CBC and 600,000 rounds of PBKDF2-HMAC-SHA256,
// which [Parse] and OpenSSL read. The error wraps [ErrKey] if PKCS #8 has no
// form for the key, as for one in an HSM.
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

// Kind says of what kind a private or public key is, as crypto/x509 returns them, in the
// words of errors: "RSA", "P-384", "Ed25519", "X25519".
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
