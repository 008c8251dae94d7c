package ca

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"
	"muster/internal/wire"
	"slices"
)

// RSA keys of less than 2048 bits are weak (NIST SP 800-57 part 1). Keys of more than 4096 bits cost verifiers too
// much. Small and even exponents can be attacked (FIPS 186-5, A.1.1).
const (
	minRSABits     = 2048
	maxRSABits     = 4096
	minRSAExponent = 1<<16 + 1
)

// ErrKey means an unsupported or weak public key.
var ErrKey = errors.New("key not accepted")

// KeyHash returns a key's fingerprint, the lower-case hex SHA-256 over its SubjectPublicKeyInfo. The error wraps
// [ErrKey].
func KeyHash(pub crypto.PublicKey) (string, error) {
	spki, err := encodeKey(pub)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrKey, err)
	}
	return wire.Sum(spki), nil
}

// p256KeyHeader precedes the point of a P-256 key (RFC 5480 section 2.1.1).
var p256KeyHeader = []byte{
	0x30, 0x59, 0x30, 0x13, // SEQUENCE of 89, AlgorithmIdentifier of 19
	6, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1, // id-ecPublicKey
	6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7, // secp256r1
	3, 0x42, 0, // BIT STRING of 66, no unused bits
}

// encodeKey returns the SubjectPublicKeyInfo, for P-256 without reflection.
func encodeKey(pub crypto.PublicKey) ([]byte, error) {
	if k, ok := pub.(*ecdsa.PublicKey); ok && k != nil && k.Curve == elliptic.P256() {
		if point, err := k.Bytes(); err == nil && len(point) == 65 {
			return slices.Concat(p256KeyHeader, point), nil
		}
	}
	return x509.MarshalPKIXPublicKey(pub)
}

// KeyType returns "P-256", "P-384", "Ed25519" or "RSA-" and the bits. For other keys the error wraps [ErrKey].
func KeyType(pub crypto.PublicKey) (string, error) {
	switch k := pub.(type) {
	case *ecdsa.PublicKey:
		if k.Curve != elliptic.P256() && k.Curve != elliptic.P384() {
			return "", fmt.Errorf("%w: ECDSA on another curve than P-256 and P-384", ErrKey)
		}
		return k.Curve.Params().Name, nil
	case ed25519.PublicKey:
		if len(k) != ed25519.PublicKeySize {
			return "", fmt.Errorf("%w: Ed25519 of %d bytes, want %d", ErrKey, len(k), ed25519.PublicKeySize)
		}
		return "Ed25519", nil
	case *rsa.PublicKey:
		return rsaType(k)
	default:
		return "", fmt.Errorf("%w: %T, want ECDSA on P-256 or P-384, Ed25519 or RSA", ErrKey, pub)
	}
}

func rsaType(k *rsa.PublicKey) (string, error) {
	bits := k.N.BitLen()
	switch {
	case bits < minRSABits || bits > maxRSABits || bits%8 != 0:
		return "", fmt.Errorf("%w: RSA of %d bits, want %d to %d in steps of 8", ErrKey, bits, minRSABits, maxRSABits)
	case k.N.Bit(0) == 0:
		return "", fmt.Errorf("%w: RSA with an even modulus", ErrKey)
	case k.E < minRSAExponent || k.E%2 == 0:
		return "", fmt.Errorf("%w: RSA exponent %d, want an odd one of %d or more", ErrKey, k.E, minRSAExponent)
	}
	return fmt.Sprintf("RSA-%d", bits), nil
}

var errCertificate = errors.New("not a certificate in DER")

// PublicKey returns the key of a certificate in DER, in a tenth of crypto/x509's time. For a malformed certificate
// it may return a key where crypto/x509 fails, but never a different key.
func PublicKey(certificate []byte) (crypto.PublicKey, error) {
	// The key comes after version, serial number, algorithm, issuer, validity and subject (RFC 5280 section 4.1).
	_, tbs, _, ok := readDER(certificate, tagSequence)
	if ok {
		_, tbs, _, ok = readDER(tbs, tagSequence)
	}
	for _, tag := range []byte{tagVersion, tagInteger, tagSequence, tagSequence, tagSequence, tagSequence} {
		if ok {
			_, _, tbs, ok = readDER(tbs, tag)
		}
	}
	spki, _, _, found := readDER(tbs, tagSequence)
	if !ok || !found {
		return nil, errCertificate
	}
	var key crypto.PublicKey
	var err error
	if point, p256 := bytes.CutPrefix(spki, p256KeyHeader); p256 {
		key, err = ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point)
	} else {
		key, err = x509.ParsePKIXPublicKey(spki)
	}
	if err != nil {
		return nil, err // key may be a typed nil
	}
	return key, nil
}

// readDER returns the first value of b, its content, and what follows.
func readDER(b []byte, tag byte) (whole, content, rest []byte, ok bool) {
	if len(b) < 2 || b[0] != tag {
		return nil, nil, nil, false
	}
	header, n := 2, int(b[1])
	if n >= 0x80 {
		octets := n & 0x7f
		if octets < 1 || octets > 2 || len(b) < 2+octets {
			return nil, nil, nil, false // a length of 65,536 bytes or more, or indefinite
		}
		header, n = 2+octets, 0
		for _, c := range b[2:header] {
			n = n<<8 | int(c)
		}
	}
	if len(b)-header < n {
		return nil, nil, nil, false
	}
	return b[:header+n], b[header : header+n], b[header+n:], true
}
