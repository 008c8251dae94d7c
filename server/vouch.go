package server

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"muster/internal/wire"
)

// splitAuthority parses the authority of a reply: the roots to trust, and with
// them, while a fleet changes its root, the cross certificates by which roots
// vouch for each other.
func splitAuthority(text string) (roots, cross []*x509.Certificate, err error) {
	all, err := parseCertificates(text)
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

// encodeCertificates is the reverse of parseCertificates.
func encodeCertificates(certs []*x509.Certificate) string {
	var b strings.Builder
	for _, c := range certs {
		_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}) // a Builder takes everything
	}
	return b.String()
}

// checkPin checks that every root is the one that the token pins, or that the
// pinned one vouches for it: by a cross certificate, or by several in a row.
// Not one of the roots, but each: an added root could vouch for a false broker
// later. What else came along, the pinned certificate perhaps among it, trusts
// nobody by itself.
func checkPin(pin string, roots, others []*x509.Certificate, at time.Time) error {
	all := slices.Concat(roots, others)
	var trusted []*x509.Certificate
	for _, c := range all {
		if fingerprint(c) == pin {
			trusted = append(trusted, c)
			break
		}
	}
	if root := unvouched(trusted, roots, others, at); root != nil {
		return &cause{what: fmt.Errorf("authority %.200q, sha256 %.16s, is not the one that the token pins, sha256 %.16s, nor does that one vouch for it",
			root.Subject, fingerprint(root), pin), remedy: remedyPin}
	}
	return nil
}

// checkKnown checks that every root is one of those in force on the node, or
// that one of these vouches for it: the connection over which a renewal comes
// proves a certificate of a broker, and not the authority's key, so whoever has
// the former must not get to say whom the node trusts from now on.
func checkKnown(known, roots, others []*x509.Certificate, at time.Time) error {
	if root := unvouched(slices.Clone(known), roots, others, at); root != nil {
		return &cause{what: fmt.Errorf("authority %.200q, sha256 %.16s, is none that the node trusts, nor does one of those vouch for it",
			root.Subject, fingerprint(root)), remedy: remedyKnown}
	}
	return nil
}

// unvouched returns the first root that is not among the trusted certificates
// and that they do not vouch for either, by a cross certificate or by several in
// a row; nil if there is none. It appends to trusted.
func unvouched(trusted, roots, others []*x509.Certificate, at time.Time) *x509.Certificate {
	all := slices.Concat(roots, others)
	for i := 0; i < len(trusted); i++ {
		for _, root := range all { // one that is not to be trusted may be in between
			if !slices.ContainsFunc(trusted, root.Equal) && vouched(trusted[i], root, others, at) {
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

// vouched reports whether one of the others is by's word for root.
func vouched(by, root *x509.Certificate, others []*x509.Certificate, at time.Time) bool {
	return slices.ContainsFunc(others, func(c *x509.Certificate) bool { return wire.Vouches(c, by, root, at) == nil })
}

// latestStart returns the last instant at which one of the certificates begins.
func latestStart(certs ...*x509.Certificate) time.Time {
	var start time.Time
	for _, c := range certs {
		if c.NotBefore.After(start) {
			start = c.NotBefore
		}
	}
	return start
}
