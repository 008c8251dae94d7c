package ca

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"errors"
)

// errCertificate means that bytes are no certificate.
var errCertificate = errors.New("not a certificate in DER")

// PublicKey returns the public key of a certificate in DER, without reading the
// rest of it: in a tenth of the time that crypto/x509 takes for all of it. It is for
// certificates that this package has issued: of anything else it may return a
// key where crypto/x509 would not, never another one than it.
func PublicKey(certificate []byte) (crypto.PublicKey, error) {
	// Certificate and TBSCertificate (RFC 5280 section 4.1) are sequences, and
	// the key stands behind version, serial number, algorithm, issuer, validity
	// and subject.
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
		return nil, err // and not a nil key in an interface, which both can return
	}
	return key, nil
}

// readDER returns the first value in b, which has the tag: all of it, its content, and what
// comes behind it.
func readDER(b []byte, tag byte) (whole, content, rest []byte, ok bool) {
	if len(b) < 2 || b[0] != tag {
		return nil, nil, nil, false
	}
	header, n := 2, int(b[1])
	if n >= 0x80 {
		octets := n & 0x7f
		if octets < 1 || octets > 2 || len(b) < 2+octets {
			return nil, nil, nil, false // 65,536 bytes or more, or of no length at all
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
