package ca

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"errors"
)

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
