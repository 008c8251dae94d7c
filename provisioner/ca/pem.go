package ca

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// blockType is the type of a certificate's block (RFC 7468 section 5.1).
const blockType = "CERTIFICATE"

// maxPEMCertificates bounds one file of certificates. A chain has two or three;
// chosen to leave room for a rotation of roots.
const maxPEMCertificates = 16

// ErrPEM means that bytes are not the certificates in PEM that were wanted.
var ErrPEM = errors.New("not certificates in PEM")

// ParseCertificates returns the certificates in pemBytes in their order, at
// least one and at most 16. Text outside of blocks is allowed, as `openssl x509
// -text` writes it; a block of another type or one that is damaged is not,
// since a certificate that is silently left out is found only when it is
// missed. The error wraps [ErrPEM].
func ParseCertificates(pemBytes []byte) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	begun := bytes.Count(pemBytes, []byte("-----BEGIN "))
	for rest := pemBytes; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != blockType {
			return nil, fmt.Errorf("%w: block %d is %.40q, want %s", ErrPEM, len(certs)+1, block.Type, blockType)
		}
		if len(certs) == maxPEMCertificates {
			return nil, fmt.Errorf("%w: more than %d", ErrPEM, maxPEMCertificates)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%w: block %d: %w", ErrPEM, len(certs)+1, err)
		}
		certs = append(certs, c)
	}
	if begun == 0 {
		return nil, fmt.Errorf("%w: no %s block", ErrPEM, blockType)
	}
	if len(certs) != begun {
		return nil, fmt.Errorf("%w: %d of %d blocks are damaged", ErrPEM, begun-len(certs), begun)
	}
	return certs, nil
}

// encodePEM returns one certificate in PEM, with a final newline.
func encodePEM(der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: blockType, Bytes: der}))
}
