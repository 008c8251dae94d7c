package wire

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
)

// ErrProof means that a signature does not prove what it should.
var ErrProof = errors.New("signature does not verify")

// maxRSABytes bounds RSA keys with which signatures are checked, as package ca
// bounds those of nodes.
const maxRSABytes = 4096 / 8

// AppliedDigest is what the key of a certificate signs to confirm that the
// certificate and its configuration are on disk.
func AppliedDigest(identity, serial, digest string) [sha256.Size]byte {
	return sha256.Sum256([]byte("muster applied v1\n" + identity + "\n" + serial + "\n" + digest + "\n"))
}

// ContinuityDigest is what an earlier key of an identity signs to pass the
// identity on to the key in csr. It covers the request id and the whole
// certificate request, so it is good for this request only.
func ContinuityDigest(requestID, identity string, csr []byte) [sha256.Size]byte {
	sum := sha256.Sum256(csr)
	return sha256.Sum256([]byte("muster continuity v1\n" + requestID + "\n" + identity + "\n" + string(sum[:])))
}

// Vouch returns a key's word for the request with this id, identity and
// certificate request.
func Vouch(key crypto.Signer, requestID, identity string, csr []byte) (*Continuity, error) {
	spki, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, fmt.Errorf("continuity: %w", err)
	}
	signature, err := Sign(key, ContinuityDigest(requestID, identity, csr))
	if err != nil {
		return nil, fmt.Errorf("continuity: %w", err)
	}
	return &Continuity{PublicKey: spki, Signature: signature}, nil
}

// Sign signs a digest of this package with a node's key: ECDSA in ASN.1, RSA
// in PKCS #1 v1.5 with SHA-256, Ed25519 over the digest as its message.
func Sign(key crypto.Signer, digest [sha256.Size]byte) ([]byte, error) {
	opts := crypto.SignerOpts(crypto.SHA256)
	if _, ok := key.Public().(ed25519.PublicKey); ok {
		opts = crypto.Hash(0)
	}
	sig, err := key.Sign(rand.Reader, digest[:], opts)
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	return sig, nil
}

// CheckSignature checks what [Sign] made. An RSA key of more than 4096 bits is
// refused before it is used. The error wraps [ErrProof].
func CheckSignature(pub crypto.PublicKey, digest [sha256.Size]byte, sig []byte) error {
	ok := false
	switch k := pub.(type) {
	case *ecdsa.PublicKey:
		ok = ecdsa.VerifyASN1(k, digest[:], sig)
	case ed25519.PublicKey:
		ok = ed25519.Verify(k, digest[:], sig)
	case *rsa.PublicKey:
		// A message has room for a key of 300,000 bits, with which one check
		// takes seconds.
		if k.Size() > maxRSABytes {
			return fmt.Errorf("%w: RSA of %d bits, limit %d", ErrProof, 8*k.Size(), 8*maxRSABytes)
		}
		ok = rsa.VerifyPKCS1v15(k, crypto.SHA256, digest[:], sig) == nil
	default:
		return fmt.Errorf("%w: key of type %T", ErrProof, pub)
	}
	if !ok {
		return ErrProof
	}
	return nil
}
