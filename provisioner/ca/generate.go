package ca

import (
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"time"
)

// The issuing certificate is shorter-lived: tokens pin only the root.
const (
	rootYears    = 10
	issuingYears = 5

	// authorityBackdate is for nodes with slow clocks, and covers [Backdate].
	authorityBackdate = time.Hour
)

// A common name is a name, a suffix and, from the second authority on, a number.
const (
	rootSuffix    = " root CA"
	issuingSuffix = " issuing CA"
)

// maxAuthorityName leaves room for suffix and number.
const maxAuthorityName = 48

const defaultName = "muster"

// Generated is a new authority. Keep RootKey offline; only another issuing CA and [Roll] need it.
type Generated struct {
	Root, Issuing       *x509.Certificate
	RootPEM, IssuingPEM string
	RootKey, IssuingKey crypto.Signer // P-256
	Fingerprint         string        // of Root; see [Authority.Fingerprint]
}

// Generate makes a root and an issuing CA. name begins both common names, at most 48 bytes; "" means "muster". The
// root's path length is unlimited, because cross certificates lengthen chains.
func Generate(name string, now time.Time) (*Generated, error) { return generate(name, now, 1, nil) }

// generate makes the nth authority of its name.
func generate(name string, now time.Time, n int, extensions []pkix.Extension) (*Generated, error) {
	if len(name) > maxAuthorityName || !printable(name) {
		return nil, fmt.Errorf("generate authority: name %.80q: want at most %d bytes of printable UTF-8", name,
			maxAuthorityName)
	}
	notBefore := now.UTC().Add(-authorityBackdate).Truncate(time.Second)
	template := &x509.Certificate{
		Subject:         pkix.Name{CommonName: authorityName(name, rootSuffix, n)},
		NotBefore:       notBefore,
		NotAfter:        notBefore.AddDate(rootYears, 0, 0),
		MaxPathLen:      -1,
		ExtraExtensions: extensions,
	}
	root, rootKey, err := newAuthority(template, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("generate root: %w", err)
	}
	issuing, issuingKey, err := newAuthority(&x509.Certificate{
		Subject:        pkix.Name{CommonName: authorityName(name, issuingSuffix, n)},
		NotBefore:      notBefore,
		NotAfter:       notBefore.AddDate(issuingYears, 0, 0),
		MaxPathLenZero: true,
	}, root, rootKey)
	if err != nil {
		return nil, fmt.Errorf("generate issuing CA: %w", err)
	}
	return &Generated{
		Root:        root,
		RootPEM:     encodePEM(root.Raw),
		RootKey:     rootKey,
		Issuing:     issuing,
		IssuingPEM:  encodePEM(issuing.Raw),
		IssuingKey:  issuingKey,
		Fingerprint: certificateFingerprint(root.Raw),
	}, nil
}

func authorityName(name, suffix string, n int) string {
	name = cmp.Or(name, defaultName) + suffix
	if n > 1 {
		name += fmt.Sprintf(" %d", n)
	}
	return name
}

// newAuthority makes a key and its CA certificate, self-signed if parent is nil.
func newAuthority(
	template, parent *x509.Certificate, parentKey crypto.Signer,
) (*x509.Certificate, crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if template.SubjectKeyId, err = keyIdentifier(key.Public()); err != nil {
		return nil, nil, err
	}
	template.SerialNumber = newSerial()
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	template.BasicConstraintsValid = true
	template.IsCA = true
	if parent == nil {
		parent, parentKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey)
	if err != nil {
		return nil, nil, err
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, err
	}
	return c, key, nil
}
