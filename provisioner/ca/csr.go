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

// ErrCSR means an unacceptable certificate request. A weak key also wraps [ErrKey].
var ErrCSR = errors.New("certificate request not accepted")

// CSR is the content of a certificate request (RFC 2986). Its signature proves that the sender holds the key; the
// names are claims.
type CSR struct {
	CommonName  string // may be empty
	DNSNames    []string
	IPAddresses []string
	URIs        []string
	Emails      []string

	// Extensions are Puppet's below 1.3.6.1.4.1.34380.1.1, by name ([PuppetExtensions]) without pp_preshared_key, which
	// is a secret. Unpermitted has the OIDs of all other requested extensions but the names.
	Extensions  map[string]string
	Unpermitted []string

	// Challenge is the challengePassword, which may be a secret.
	Challenge string

	PublicKey crypto.PublicKey // *ecdsa.PublicKey, *rsa.PublicKey or ed25519.PublicKey
	KeyHash   string           // [KeyHash] of PublicKey
	KeyType   string           // [KeyType] of PublicKey
}

// PuppetExtensions has the names of Puppet's extensions by their last arc below 1.3.6.1.4.1.34380.1.1, from 1 on.
var PuppetExtensions = []string{
	"", "pp_uuid", "pp_instance_id", "pp_image_name", "pp_preshared_key", "pp_cost_center", "pp_product",
	"pp_project", "pp_application", "pp_service", "pp_employee", "pp_created_by", "pp_environment", "pp_role",
	"pp_software_version", "pp_department", "pp_cluster", "pp_provisioner", "pp_region", "pp_datacenter", "pp_zone",
	"pp_network", "pp_securitypolicy", "pp_cloudplatform", "pp_apptier", "pp_hostname", "pp_owner",
}

// KeyRequest is the content of a request for a key alone, whose possession the caller has verified. The error wraps
// [ErrKey].
func KeyRequest(key crypto.PublicKey) (*CSR, error) {
	c := &CSR{PublicKey: key}
	var err error
	if c.KeyType, err = KeyType(key); err == nil {
		c.KeyHash, err = KeyHash(key)
	}
	return c, err
}

// csrSignatures exclude MD5 and SHA-1.
var csrSignatures = []x509.SignatureAlgorithm{
	x509.ECDSAWithSHA256, x509.ECDSAWithSHA384, x509.ECDSAWithSHA512, x509.PureEd25519,
	x509.SHA256WithRSA, x509.SHA384WithRSA, x509.SHA512WithRSA,
	x509.SHA256WithRSAPSS, x509.SHA384WithRSAPSS, x509.SHA512WithRSAPSS,
}

// Bounds of a request.
const (
	maxCSRParts        = 16 // names; also extensions
	maxCSRSubjectBytes = 1 << 10
	maxCSRBytes        = wire.MaxCSRBytes + wire.MaxTokenBytes // with a token as challengePassword
)

// ParseCSR reads a request in DER and verifies its signature. The error wraps [ErrCSR].
func ParseCSR(der []byte) (*CSR, error) {
	if c := parseCommonCSR(der); c != nil {
		return c, nil
	}
	c, err := parseCSR(der)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCSR, err)
	}
	return c, nil
}

func parseCSR(der []byte) (*CSR, error) {
	if len(der) > maxCSRBytes {
		return nil, fmt.Errorf("%d bytes, limit %d", len(der), maxCSRBytes)
	}
	if len(der) > 0 && der[0] == '-' {
		return nil, errors.New("PEM, want DER")
	}
	req, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return nil, fmt.Errorf("not PKCS #10 in DER: %w", err)
	}
	if req.Version != 0 && req.Version != 2 { // RFC 2986 section 4.1 wants 0; `puppetserver ca generate` writes 2
		return nil, fmt.Errorf("version %d, want 0", req.Version)
	}
	if req.PublicKey == nil {
		return nil, fmt.Errorf("%w: unknown algorithm", ErrKey)
	}
	// Policies, events and logs get these fields, so they are limited.
	names := len(req.DNSNames) + len(req.IPAddresses) + len(req.URIs) + len(req.EmailAddresses)
	if names > maxCSRParts || len(req.Extensions) > maxCSRParts || len(req.RawSubject) > maxCSRSubjectBytes {
		return nil, fmt.Errorf("%d names, %d extensions and a subject of %d bytes, want at most %d, %d and %d",
			names, len(req.Extensions), len(req.RawSubject), maxCSRParts, maxCSRParts, maxCSRSubjectBytes)
	}
	c := &CSR{PublicKey: req.PublicKey}
	if c.KeyType, err = KeyType(req.PublicKey); err != nil {
		return nil, err
	}
	if c.KeyHash, err = KeyHash(req.PublicKey); err != nil {
		return nil, err
	}
	if err := errors.Join(c.readNames(req), c.readExtensions(req), c.readChallenge(req)); err != nil {
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

func (c *CSR) readNames(req *x509.CertificateRequest) error {
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

func (c *CSR) readExtensions(req *x509.CertificateRequest) error {
	for _, e := range req.Extensions {
		if e.Id.Equal(oidSubjectAltName) {
			continue
		}
		name := puppetExtension(e.Id)
		if name == "" {
			c.Unpermitted = append(c.Unpermitted, e.Id.String())
			continue
		}
		text, err := derText(e.Value)
		if _, twice := c.Extensions[name]; err == nil && (twice || len(text) > maxExtensionBytes) {
			err = fmt.Errorf("%d bytes, want one of at most %d", len(text), maxExtensionBytes)
		}
		if err != nil {
			return fmt.Errorf("extension %s: %w", name, err)
		}
		if name == "pp_preshared_key" {
			continue
		}
		if c.Extensions == nil {
			c.Extensions = make(map[string]string)
		}
		c.Extensions[name] = text
	}
	return nil
}

// puppetExtension returns the name of one of [PuppetExtensions], or "".
func puppetExtension(id asn1.ObjectIdentifier) string {
	for arc, name := range PuppetExtensions {
		if id.Equal(append(slices.Clip(oidPuppet), arc)) {
			return name
		}
	}
	return ""
}

var (
	oidSubjectAltName    = asn1.ObjectIdentifier{2, 5, 29, 17}
	oidChallengePassword = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 7}
)

// readChallenge reads the challengePassword, which crypto/x509 leaves out (RFC 2985 section 5.4.1).
func (c *CSR) readChallenge(req *x509.CertificateRequest) error {
	var info struct {
		Version       int
		Subject, Key  asn1.RawValue
		RawAttributes []asn1.RawValue `asn1:"tag:0"`
	}
	if _, err := asn1.Unmarshal(req.RawTBSCertificateRequest, &info); err != nil {
		return err
	}
	for _, raw := range info.RawAttributes {
		var attribute struct {
			ID     asn1.ObjectIdentifier
			Values []asn1.RawValue `asn1:"set"`
		}
		_, err := asn1.Unmarshal(raw.FullBytes, &attribute)
		if err != nil || !attribute.ID.Equal(oidChallengePassword) || len(attribute.Values) == 0 {
			continue
		}
		if len(attribute.Values) > 1 || c.Challenge != "" {
			return errors.New("several values of challengePassword")
		}
		if text, err := derText(attribute.Values[0].FullBytes); err == nil { // else it is no token, and of no use
			c.Challenge = text
		}
	}
	return nil
}

// derText reads one UTF8String, PrintableString or IA5String.
func derText(der []byte) (string, error) {
	var value asn1.RawValue
	rest, err := asn1.Unmarshal(der, &value)
	text := string(value.Bytes)
	switch {
	case err != nil || len(rest) > 0 || value.Class != asn1.ClassUniversal ||
		!slices.Contains([]int{asn1.TagUTF8String, asn1.TagPrintableString, asn1.TagIA5String}, value.Tag):
		return "", errors.New("the value is not one UTF8String, PrintableString or IA5String")
	case !printable(text):
		return "", errors.New("the value has control characters or invalid UTF-8") // and may be a secret
	}
	return text, nil
}

// printable refuses control characters.
func printable(s string) bool {
	for _, r := range s {
		if unicode.IsControl(r) {
			return false
		}
	}
	return utf8.ValidString(s)
}
