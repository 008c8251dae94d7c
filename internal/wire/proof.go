package wire

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
)

// ErrProof means an invalid signature.
var ErrProof = errors.New("signature does not verify")

// maxRSABytes equals package ca's limit for nodes.
const maxRSABytes = 4096 / 8

// SamePublicKey reports whether a and b are equal; keys of unknown types are not.
func SamePublicKey(a, b crypto.PublicKey) bool {
	k, ok := a.(interface{ Equal(crypto.PublicKey) bool })
	return ok && k.Equal(b)
}

// AppliedDigest is what the certificate's key signs to confirm an offer.
func AppliedDigest(identity, serial, digest string) [sha256.Size]byte {
	return sha256.Sum256([]byte("muster applied v1\n" + identity + "\n" + serial + "\n" + digest + "\n"))
}

// ContinuityDigest is what an earlier key signs to pass an identity to the key in csr.
func ContinuityDigest(requestID, identity string, csr []byte) [sha256.Size]byte {
	sum := sha256.Sum256(csr)
	return sha256.Sum256([]byte("muster continuity v1\n" + requestID + "\n" + identity + "\n" + string(sum[:])))
}

// ReplyDigest is what a provisioner signs in a reply. request is as it was sent: so neither an older reply nor one to
// an altered request verifies. Enrolled.Digest must have been checked: it stands for certificate and files.
func ReplyDigest(r *Reply, identity string, request []byte) [sha256.Size]byte {
	serial, digest, roots, receipt := "", "", "", ""
	switch {
	case r.Enrolled != nil:
		serial, digest, roots = r.Enrolled.Serial, r.Enrolled.Digest, Sum([]byte(r.Enrolled.CA))
		receipt = r.Enrolled.ReceiptSum
	case r.Applied != nil:
		serial, digest = r.Applied.Serial, "applied"
	case r.Certificate != nil:
		serial, roots = r.Certificate.Serial, Sum([]byte(r.Certificate.CA))
		digest = "certificate " + r.Certificate.Name + " " + Sum([]byte(r.Certificate.Certificate))
	case r.Refusal != nil:
		digest = string(r.Refusal.Code)
	}
	// Only the installation could have a line break, so the fields cannot be divided in another way.
	return sha256.Sum256([]byte("muster reply v1\n" + r.Installation + "\n" + r.ID + "\n" + identity + "\n" +
		Sum(request) + "\n" + serial + "\n" + digest + "\n" + roots + "\n" + receipt + "\n"))
}

// Sum returns the lower-case hex SHA-256.
func Sum(b []byte) string {
	digest := sha256.Sum256(b)
	return hex.EncodeToString(digest[:])
}

// SignContinuity signs a request with an earlier key of the identity.
func SignContinuity(key crypto.Signer, requestID, identity string, csr []byte) (*Continuity, error) {
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

// Sign signs a SHA-256 digest: ECDSA in ASN.1, RSA in PKCS #1 v1.5; Ed25519 signs the digest as a message.
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

// CheckSignature verifies a signature of [Sign]. The error wraps [ErrProof].
func CheckSignature(pub crypto.PublicKey, digest [sha256.Size]byte, sig []byte) error {
	ok := false
	switch k := pub.(type) {
	case *ecdsa.PublicKey:
		ok = ecdsa.VerifyASN1(k, digest[:], sig)
	case ed25519.PublicKey:
		ok = ed25519.Verify(k, digest[:], sig)
	case *rsa.PublicKey:
		// A key of 300,000 bits fits into a message, and one check with it takes seconds.
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
