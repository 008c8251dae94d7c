package ca

import (
	"crypto"
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"fmt"
	"slices"
	"unicode"
	"unicode/utf8"

	"muster/internal/wire"
)

// Bounds on certificate requests besides [wire.MaxCSRBytes]. Requests of our
// own nodes have one name and one extension.
const (
	maxCSRNames        = 16
	maxCSRExtensions   = 16
	maxCSRAttributes   = 16
	maxCSRSubjectBytes = 1 << 10
)

// ErrCSR means that bytes are no certificate request that could get a
// certificate. The text around it says why; a weak key also wraps [ErrKey].
var ErrCSR = errors.New("certificate request not accepted")

// CSR is what a certificate request (PKCS #10, RFC 2986) says. Its sender holds
// the private key of PublicKey; all the names are claims and are never copied
// into a certificate.
type CSR struct {
	CommonName  string   // "" if the subject has none
	DNSNames    []string // names of the requested subjectAltName, nil if none
	IPAddresses []string
	URIs        []string
	Emails      []string

	PublicKey crypto.PublicKey // *ecdsa.PublicKey, *rsa.PublicKey or ed25519.PublicKey
	KeyHash   string           // [KeyHash] of PublicKey
	KeyType   string           // [KeyType] of PublicKey
}

// csrSignatures are the signatures that prove possession of a key: those of
// RFC 5280's algorithms with SHA-2, so neither MD5 nor SHA-1.
var csrSignatures = []x509.SignatureAlgorithm{
	x509.ECDSAWithSHA256, x509.ECDSAWithSHA384, x509.ECDSAWithSHA512, x509.PureEd25519,
	x509.SHA256WithRSA, x509.SHA384WithRSA, x509.SHA512WithRSA,
	x509.SHA256WithRSAPSS, x509.SHA384WithRSAPSS, x509.SHA512WithRSAPSS,
}

// ParseCSR reads a certificate request in DER of at most [wire.MaxCSRBytes] and
// checks its signature, so that whoever made it has the key. Anything but one
// well-formed request is refused: other encodings, trailing data, a weak key,
// a second common name, names of kinds that [CSR] cannot show, more names or
// extensions than an honest node has. The error wraps [ErrCSR], and no input
// makes ParseCSR panic.
func ParseCSR(der []byte) (*CSR, error) {
	c, err := parseCSR(der)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCSR, err)
	}
	return c, nil
}

func parseCSR(der []byte) (*CSR, error) {
	if len(der) > wire.MaxCSRBytes {
		return nil, fmt.Errorf("%d bytes, limit %d", len(der), wire.MaxCSRBytes)
	}
	if len(der) > 0 && der[0] == '-' {
		return nil, errors.New("PEM, want DER")
	}
	req, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return nil, fmt.Errorf("not PKCS #10 in DER: %w", err)
	}
	if req.Version != 0 { // RFC 2986 section 4.1
		return nil, fmt.Errorf("version %d, want 0", req.Version)
	}
	if req.PublicKey == nil {
		return nil, fmt.Errorf("%w: unknown algorithm", ErrKey)
	}
	c := &CSR{PublicKey: req.PublicKey}
	if c.KeyType, err = KeyType(req.PublicKey); err != nil {
		return nil, err
	}
	if c.KeyHash, err = KeyHash(req.PublicKey); err != nil {
		return nil, err
	}
	if err := checkAttributes(req); err != nil {
		return nil, err
	}
	if err := c.readNames(req); err != nil {
		return nil, err
	}
	// The signature costs ten times the rest, so it comes last.
	if !slices.Contains(csrSignatures, req.SignatureAlgorithm) {
		return nil, fmt.Errorf("signature algorithm %v", req.SignatureAlgorithm)
	}
	if err := req.CheckSignature(); err != nil {
		return nil, fmt.Errorf("signature: %w", err)
	}
	return c, nil
}

// readNames copies the names of req and bounds them.
func (c *CSR) readNames(req *x509.CertificateRequest) error {
	if n := len(req.RawSubject); n > maxCSRSubjectBytes {
		return fmt.Errorf("subject of %d bytes, limit %d", n, maxCSRSubjectBytes)
	}
	commonNames := 0
	for _, attribute := range req.Subject.Names {
		if attribute.Type.Equal(oidCommonName) {
			commonNames++
		}
	}
	if commonNames > 1 {
		return fmt.Errorf("%d common names, want at most 1", commonNames)
	}
	c.CommonName = req.Subject.CommonName
	c.DNSNames = req.DNSNames
	c.Emails = req.EmailAddresses
	for _, ip := range req.IPAddresses {
		c.IPAddresses = append(c.IPAddresses, ip.String())
	}
	for _, u := range req.URIs {
		c.URIs = append(c.URIs, u.String())
	}
	for _, name := range slices.Concat([]string{c.CommonName}, c.DNSNames, c.Emails, c.URIs) {
		if !printable(name) {
			return fmt.Errorf("name %.80q has control characters or invalid UTF-8", name)
		}
	}
	return nil
}

// printable reports whether s is UTF-8 without control characters: such names
// are only ever meant to be read differently by two readers.
func printable(s string) bool {
	for _, r := range s {
		if unicode.IsControl(r) {
			return false
		}
	}
	return utf8.ValidString(s)
}

var (
	oidCommonName       = asn1.ObjectIdentifier{2, 5, 4, 3}
	oidSubjectAltName   = asn1.ObjectIdentifier{2, 5, 29, 17}
	oidExtensionRequest = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 14}
)

// checkAttributes bounds the attributes, extensions and names of req. It reads
// the attributes again because crypto/x509 passes over those that it cannot
// parse, and over all but the first value of one.
func checkAttributes(req *x509.CertificateRequest) error {
	var tbs struct {
		Raw        asn1.RawContent
		Version    int
		Subject    asn1.RawValue
		PublicKey  asn1.RawValue
		Attributes []asn1.RawValue `asn1:"tag:0"`
	}
	if rest, err := asn1.Unmarshal(req.RawTBSCertificateRequest, &tbs); err != nil || len(rest) > 0 {
		return errors.New("malformed certification request info")
	}
	if n := len(tbs.Attributes); n > maxCSRAttributes {
		return fmt.Errorf("%d attributes, limit %d", n, maxCSRAttributes)
	}
	requests := 0
	for _, raw := range tbs.Attributes {
		var attribute struct {
			Type   asn1.ObjectIdentifier
			Values []asn1.RawValue `asn1:"set"`
		}
		if rest, err := asn1.Unmarshal(raw.FullBytes, &attribute); err != nil || len(rest) > 0 {
			return errors.New("malformed attribute")
		}
		if !attribute.Type.Equal(oidExtensionRequest) {
			continue
		}
		if requests++; requests > 1 || len(attribute.Values) != 1 {
			return errors.New("more or less than one list of requested extensions")
		}
	}
	if n := len(req.Extensions); n > maxCSRExtensions {
		return fmt.Errorf("%d extensions, limit %d", n, maxCSRExtensions)
	}
	for _, ext := range req.Extensions {
		if ext.Id.Equal(oidSubjectAltName) {
			return checkAltNames(ext.Value)
		}
	}
	return nil
}

// checkAltNames bounds a subjectAltName (RFC 5280 section 4.2.1.6) and refuses
// the kinds of names that the policy would not get to see.
func checkAltNames(der []byte) error {
	var seq asn1.RawValue
	if rest, err := asn1.Unmarshal(der, &seq); err != nil || len(rest) > 0 || !seq.IsCompound || seq.Tag != asn1.TagSequence {
		return errors.New("malformed subject alternative name")
	}
	n := 0
	for rest := seq.Bytes; len(rest) > 0; n++ {
		var name asn1.RawValue
		var err error
		if rest, err = asn1.Unmarshal(rest, &name); err != nil || name.Class != asn1.ClassContextSpecific {
			return errors.New("malformed subject alternative name")
		}
		switch name.Tag {
		case 1, 2, 6, 7: // rfc822Name, dNSName, uniformResourceIdentifier, iPAddress
		default:
			return fmt.Errorf("alternative name of kind %d, want an email address, DNS name, URI or IP address", name.Tag)
		}
	}
	if n > maxCSRNames {
		return fmt.Errorf("%d names, limit %d", n, maxCSRNames)
	}
	return nil
}
