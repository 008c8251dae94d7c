package ca

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// blockType is from RFC 7468 section 5.1.
const blockType = "CERTIFICATE"

const maxPEMCertificates = 16

// ErrPEM means invalid PEM certificates.
var ErrPEM = errors.New("not certificates in PEM")

// ParseCertificates returns 1 to 16 certificates. Text outside of blocks is allowed. Other or damaged blocks are
// errors, because a missing certificate would be noticed late. The error wraps [ErrPEM].
func ParseCertificates(pemBytes []byte) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	headers := bytes.Count(pemBytes, []byte("-----BEGIN "))
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
	if headers == 0 {
		return nil, fmt.Errorf("%w: no %s block", ErrPEM, blockType)
	}
	if len(certs) != headers {
		return nil, fmt.Errorf("%w: %d of %d blocks are damaged", ErrPEM, headers-len(certs), headers)
	}
	return certs, nil
}

func encodePEM(der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: blockType, Bytes: der}))
}
