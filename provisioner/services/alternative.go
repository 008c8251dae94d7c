package services

import (
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"fmt"
)

var oidSubjectAltName = asn1.ObjectIdentifier{2, 5, 29, 17}

// Tags of RFC 5280 section 4.2.1.6.
const (
	tagDNSName   = 2
	tagURI       = 6
	tagIPAddress = 7
)

// checkAlternativeNames refuses names that crypto/x509 hides: a second list, and kinds that no service certificate has.
func checkAlternativeNames(der []byte) error {
	request, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return err
	}
	lists := 0
	for _, e := range request.Extensions {
		if !e.Id.Equal(oidSubjectAltName) {
			continue
		}
		var names []asn1.RawValue
		if rest, err := asn1.Unmarshal(e.Value, &names); err != nil || len(rest) > 0 {
			return errors.New("alternative names: not a list in DER")
		}
		for _, n := range names {
			if n.Class != asn1.ClassContextSpecific || n.Tag != tagDNSName && n.Tag != tagURI && n.Tag != tagIPAddress {
				return fmt.Errorf("alternative name of kind %d, want DNS names, addresses and URIs", n.Tag)
			}
		}
		lists++
	}
	if lists > 1 {
		return fmt.Errorf("%d lists of alternative names, want one", lists)
	}
	return nil
}
