package ca

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"math/big"
	"slices"
	"time"

	"muster/internal/wire"
)

// A layout has the constant DER of usual certificates: for a node and clientAuth, with only the identity as DNS
// name, signed with P-256. It takes a sixth of crypto/x509's time for the same bytes (TestAssembledIsWhatX509Makes).
type layout struct {
	issuer []byte // Name

	// Extensions before and after the subject key identifier, in crypto/x509's order.
	before, after []byte
}

var (
	derVersion3 = []byte{0xa0, 3, 2, 1, 2}

	// ecdsa-with-SHA256 without parameters (RFC 5758 section 3.2).
	derECDSAWithSHA256 = []byte{0x30, 10, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2}

	derCommonName     = []byte{6, 3, 0x55, 4, 3}     // 2.5.4.3
	derSubjectKeyID   = []byte{6, 3, 0x55, 0x1d, 14} // 2.5.29.14
	derSubjectAltName = []byte{6, 3, 0x55, 0x1d, 17} // 2.5.29.17
	derCritical       = []byte{1, 1, 0xff}
)

// DER tags.
const (
	tagInteger         = 0x02
	tagBitString       = 0x03
	tagOctetString     = 0x04
	tagPrintableString = 0x13
	tagUTCTime         = 0x17
	tagSequence        = 0x30
	tagSet             = 0x31
	tagKeyIdentifier   = 0x80 // [0] of an AuthorityKeyIdentifier
	tagVersion         = 0xa0 // [0] of a TBSCertificate
	tagAttributes      = 0xa0 // [0] of a CertificationRequestInfo
	tagDNSName         = 0x82 // [2] of a GeneralName
	tagURI             = 0x86 // [6]
	tagExtensions      = 0xa3 // [3] of a TBSCertificate
)

// newLayout returns nil if issuing cannot sign usual certificates.
func newLayout(issuing *x509.Certificate) *layout {
	if len(issuing.SubjectKeyId) == 0 {
		return nil
	}
	if _, err := wire.ParseIdentity(issuing.Subject.CommonName); err == nil {
		return nil // a node could have this subject; crypto/x509 then treats its certificate as self-signed
	}
	l := &layout{issuer: issuing.RawSubject}
	l.before = slices.Concat(
		// keyUsage: digitalSignature
		der(tagSequence, []byte{6, 3, 0x55, 0x1d, 15}, derCritical, der(tagOctetString, []byte{3, 2, 7, 0x80})),
		// extKeyUsage: clientAuth
		der(tagSequence, []byte{6, 3, 0x55, 0x1d, 37}, der(tagOctetString,
			der(tagSequence, []byte{6, 8, 0x2b, 6, 1, 5, 5, 7, 3, 2}))),
		// basicConstraints: no CA
		der(tagSequence, []byte{6, 3, 0x55, 0x1d, 19}, derCritical, der(tagOctetString, der(tagSequence))))
	l.after = der(tagSequence, []byte{6, 3, 0x55, 0x1d, 35}, der(tagOctetString, // authorityKeyIdentifier
		der(tagSequence, der(tagKeyIdentifier, issuing.SubjectKeyId))))
	return l
}

// fits reports whether l can assemble the certificate.
func (l *layout) fits(r *Request, t *x509.Certificate) bool {
	inUTCTime := func(at time.Time) bool { return at.Year() >= 1950 && at.Year() < 2050 } // RFC 5280 section 4.1.2.5
	return l != nil && r.Role == wire.RoleNode &&
		len(t.DNSNames) == 1 && t.DNSNames[0] == r.Name && len(t.IPAddresses) == 0 && len(t.URIs) == 1 &&
		len(t.ExtKeyUsage) == 1 && t.ExtKeyUsage[0] == x509.ExtKeyUsageClientAuth &&
		inUTCTime(t.NotBefore) && inUTCTime(t.NotAfter)
}

// assemble returns the TBSCertificate (RFC 5280 section 4.1).
func (l *layout) assemble(t *x509.Certificate, spki []byte) []byte {
	subject := der(tagSequence)
	if name := t.Subject.CommonName; name != "" {
		// Every identity is a valid PrintableString.
		subject = der(tagSequence, der(tagSet, der(tagSequence, derCommonName, der(tagPrintableString, []byte(name)))))
	}
	return der(tagSequence, derVersion3, derInteger(t.SerialNumber), derECDSAWithSHA256, l.issuer,
		der(tagSequence, utcTime(t.NotBefore), utcTime(t.NotAfter)), subject, spki,
		der(tagExtensions, der(tagSequence, l.before,
			der(tagSequence, derSubjectKeyID, der(tagOctetString, der(tagOctetString, t.SubjectKeyId))),
			l.after, altNames(t), puppetExtensions(t.ExtraExtensions))))
}

// altNames returns names that are critical without a subject (RFC 5280 section 4.2.1.6).
func altNames(t *x509.Certificate) []byte {
	var critical []byte
	if t.Subject.CommonName == "" {
		critical = derCritical
	}
	return der(tagSequence, derSubjectAltName, critical, der(tagOctetString,
		der(tagSequence, der(tagDNSName, []byte(t.DNSNames[0])), der(tagURI, []byte(t.URIs[0].String())))))
}

func puppetExtensions(all []pkix.Extension) []byte {
	var b []byte
	for _, e := range all {
		id, _ := asn1.Marshal(e.Id) // well-formed
		b = append(b, der(tagSequence, id, der(tagOctetString, e.Value))...)
	}
	return b
}

// derInteger encodes a number that is not negative.
func derInteger(x *big.Int) []byte {
	b := x.Bytes()
	if len(b) == 0 || b[0] >= 0x80 {
		b = append([]byte{0}, b...)
	}
	return der(tagInteger, b)
}

func utcTime(t time.Time) []byte { return der(tagUTCTime, []byte(t.UTC().Format("060102150405Z"))) }

func signed(tbs, signature []byte) []byte {
	return der(tagSequence, tbs, derECDSAWithSHA256, der(tagBitString, []byte{0}, signature)) // no unused bits
}

// der encodes a value of at most 65,535 bytes.
func der(tag byte, parts ...[]byte) []byte {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	b := make([]byte, 0, n+4)
	switch {
	case n < 0x80:
		b = append(b, tag, byte(n))
	case n < 0x100:
		b = append(b, tag, 0x81, byte(n))
	default:
		b = append(b, tag, 0x82, byte(n>>8), byte(n))
	}
	for _, p := range parts {
		b = append(b, p...)
	}
	return b
}
