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

// maxCertificates bounds a file. During a change of the root it has two roots and cross certificates.
const maxCertificates = 8

const remedyPin = "the token was probably signed with --ca of another authority, or the authority has changed: " +
	"sign it with this fleet's --ca and replace the file; " +
	"if the token is right, the peer does not belong to this fleet"

const remedyKnown = "if the fleet has a new authority without a cross certificate by the former one, " +
	"let the node enroll again with a token signed with --ca of the new one; " +
	"otherwise the peer does not belong to this fleet"

// ParseCertificates parses 1 to 8 certificates in PEM. It refuses text between the blocks, which other programs may
// interpret.
func ParseCertificates(s string) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	for rest := []byte(s); strings.TrimSpace(string(rest)) != ""; {
		if !strings.HasPrefix(strings.TrimSpace(string(rest)), "-----BEGIN CERTIFICATE-----") {
			return nil, errors.New("more than certificates in PEM")
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

// EncodeCertificates returns the certificates in PEM.
func EncodeCertificates(certs []*x509.Certificate) string {
	var b strings.Builder
	for _, c := range certs {
		_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}) // a Builder returns no error
	}
	return b.String()
}

// SplitAuthority parses the authority of a reply: its roots, and during a change of the root the cross certificates
// between them.
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

// An Authority holds what a node knows about the expected authority.
type Authority struct {
	Pin   string              // hex SHA-256 from the token; empty: not pinned
	Known []*x509.Certificate // roots in force, for a renewal; nil: none
}

// Check requires that every root is pinned, known, or connected to such a root by cross certificates. For a renewal,
// the roots in force count like the pin, since the fleet may have replaced the authority that the token pins. The TLS
// connection does not count: it proves a broker's key, not the authority's.
func (a Authority) Check(c *Credentials, cross []*x509.Certificate, now Clock) error {
	if a.Pin == "" && a.Known == nil {
		return nil
	}
	others := slices.Concat(c.Chain[1:], cross)
	// A backdated certificate may begin before its new authority does.
	at := now(latestStart(slices.Concat(c.Chain[:1], c.Roots, others)...))
	if a.Known != nil {
		root := firstUntrusted(a.Known, c.Roots, others, at)
		if root == nil {
			return nil
		}
		if a.Pin == "" {
			return advice.Errorf(remedyKnown, "authority %.200q, sha256 %.16s, is not trusted by the node "+
				"and has no cross certificate by a trusted one", root.Subject, fingerprint(root))
		}
	}
	unpinned := func(c *x509.Certificate) bool { return fingerprint(c) != a.Pin }
	pinned := slices.DeleteFunc(slices.Concat(c.Roots, others), unpinned)
	if root := firstUntrusted(pinned, c.Roots, others, at); root != nil {
		return advice.Errorf(remedyPin,
			"authority %.200q, sha256 %.16s, is not the one that the token pins, sha256 %.16s, "+
				"and has no cross certificate by it", root.Subject, fingerprint(root), a.Pin)
	}
	return nil
}

// firstUntrusted returns the first root that is neither trusted nor connected to a trusted one by a chain of cross
// certificates; nil: none.
func firstUntrusted(trusted, roots, others []*x509.Certificate, at time.Time) *x509.Certificate {
	trusted = slices.Clone(trusted)
	all := slices.Concat(roots, others)
	for i := 0; i < len(trusted); i++ {
		for _, root := range all { // an untrusted root may be in between
			vouches := func(c *x509.Certificate) bool { return wire.CheckCross(c, trusted[i], root, at) == nil }
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
