package trust

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"muster/internal/wire"
	"muster/server/advice"
)

// maxCertificates bounds a file: a chain has two, a fleet that changes its root
// two roots for a while, and cross certificates.
const maxCertificates = 8

const remedyPin = "the token was probably signed with --ca of another authority, or the authority has changed: " +
	"sign it with this fleet's --ca and replace the file; " +
	"if the token is right, something else answers in the fleet's place"

const remedyKnown = "if the fleet has a new authority that its former one does not vouch for, have the node enroll again " +
	"with a token signed with --ca of the new one; else something else answers in the fleet's place"

// ParseCertificates parses 1 to 8 certificates in PEM. Text between the blocks
// is refused, since other readers may take it for something.
func ParseCertificates(s string) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	for rest := []byte(s); strings.TrimSpace(string(rest)) != ""; {
		if !strings.HasPrefix(strings.TrimSpace(string(rest)), "-----BEGIN CERTIFICATE-----") {
			return nil, errors.New("not only certificates in PEM")
		}
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil || block.Type != "CERTIFICATE" {
			return nil, errors.New("not a certificate in PEM")
		}
		if len(certs) == maxCertificates {
			return nil, fmt.Errorf("more than %d certificates", maxCertificates)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		certs = append(certs, cert)
	}
	if len(certs) == 0 {
		return nil, errors.New("no certificate in PEM")
	}
	return certs, nil
}

// EncodeCertificates is the reverse of [ParseCertificates].
func EncodeCertificates(certs []*x509.Certificate) string {
	var b strings.Builder
	for _, c := range certs {
		_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}) // a Builder takes everything
	}
	return b.String()
}

// SplitAuthority parses the authority of a reply: the roots to trust, and while
// a fleet changes its root the cross certificates by which roots vouch for each
// other.
func SplitAuthority(text string) (roots, cross []*x509.Certificate, err error) {
	all, err := ParseCertificates(text)
	if err != nil {
		return nil, nil, fmt.Errorf("authority: %w", err)
	}
	for _, c := range all {
		if wire.SelfSigned(c) {
			roots = append(roots, c)
		} else {
			cross = append(cross, c)
		}
	}
	if len(roots) == 0 {
		return nil, nil, errors.New("authority: no root certificate")
	}
	return roots, cross, nil
}

// An Authority is what a node knows of the authority to expect.
type Authority struct {
	Pin   string              // hex SHA-256 from the token; empty: any, or what Known says
	Known []*x509.Certificate // the roots in force, of a renewal; nil: any, or what Pin says
}

// Check checks each root, and not just one of them, against the pin and the
// roots in force: it is pinned or known, or vouched for by such a one through
// cross certificates. Of a renewal the roots in force count as much as the pin:
// the token on the node may pin an authority that the fleet has left since. The
// connection over which a renewal comes proves a broker's certificate and not
// the authority's key, so it does not count.
func (a Authority) Check(c *Credentials, cross []*x509.Certificate, now Clock) error {
	if a.Pin == "" && a.Known == nil {
		return nil
	}
	others := slices.Concat(c.Chain[1:], cross)
	// A certificate is backdated, and may be older than the authority that is changed to.
	at := now(latestStart(slices.Concat(c.Chain[:1], c.Roots, others)...))
	if a.Known != nil {
		root := unvouched(a.Known, c.Roots, others, at)
		if root == nil {
			return nil
		}
		if a.Pin == "" {
			return advice.Errorf(remedyKnown,
				"authority %.200q, sha256 %.16s, is none that the node trusts, nor does one of those vouch for it",
				root.Subject, fingerprint(root))
		}
	}
	pinned := slices.DeleteFunc(slices.Concat(c.Roots, others), func(c *x509.Certificate) bool { return fingerprint(c) != a.Pin })
	if root := unvouched(pinned, c.Roots, others, at); root != nil {
		return advice.Errorf(remedyPin,
			"authority %.200q, sha256 %.16s, is not the one that the token pins, sha256 %.16s, nor does that one vouch for it",
			root.Subject, fingerprint(root), a.Pin)
	}
	return nil
}

// unvouched returns the first root that is not among the trusted certificates
// and that they do not vouch for either, by a cross certificate or by several in
// a row; nil if there is none.
func unvouched(trusted, roots, others []*x509.Certificate, at time.Time) *x509.Certificate {
	trusted = slices.Clone(trusted)
	all := slices.Concat(roots, others)
	for i := 0; i < len(trusted); i++ {
		for _, root := range all { // one that is not to be trusted may be in between
			vouches := func(c *x509.Certificate) bool { return wire.Vouches(c, trusted[i], root, at) == nil }
			if !slices.ContainsFunc(trusted, root.Equal) && slices.ContainsFunc(others, vouches) {
				trusted = append(trusted, root)
			}
		}
	}
	for _, root := range roots {
		if !slices.ContainsFunc(trusted, root.Equal) {
			return root
		}
	}
	return nil
}
