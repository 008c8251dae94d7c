package wire

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"slices"
	"time"
)

// ErrNotVouched means that no trusted root vouches for a root, so it must not be trusted.
var ErrNotVouched = errors.New("no cross certificate")

// oidAuthorityKeyID is the only extension in which a cross certificate differs from its root (RFC 5280 section
// 4.2.1.1).
var oidAuthorityKeyID = asn1.ObjectIdentifier{2, 5, 29, 35}

// CheckCross checks that cross is a cross certificate for root, signed by the root named by (RFC 4210 section 4.4).
// All three must be valid at the given time; a zero time skips this check. The error wraps [ErrNotVouched].
//
// Verifying a chain would accept a root that an issuing key has certified. So by must allow an issuing authority
// below root, and cross must have root's extensions.
func CheckCross(cross, by, root *x509.Certificate, at time.Time) error {
	if err := checkCross(cross, by, root, at); err != nil {
		return fmt.Errorf("%w of %.200q by %.200q: %w", ErrNotVouched, root.Subject, by.Subject, err)
	}
	return nil
}

func checkCross(cross, by, root *x509.Certificate, at time.Time) error {
	switch {
	case !SelfSigned(by) || !SelfSigned(root):
		return errors.New("want two roots, each signed by itself")
	case bytes.Equal(by.RawSubjectPublicKeyInfo, root.RawSubjectPublicKeyInfo):
		return errors.New("both have the same key")
	case !bytes.Equal(cross.RawSubject, root.RawSubject),
		!bytes.Equal(cross.RawSubjectPublicKeyInfo, root.RawSubjectPublicKeyInfo):
		return errors.New("it certifies another root")
	case !bytes.Equal(cross.RawIssuer, by.RawSubject):
		return errors.New("it is signed by another root")
	}
	if err := cross.CheckSignatureFrom(by); err != nil {
		return err
	}
	if !sameExtensions(cross, root) {
		return errors.New("its extensions differ from the root's")
	}
	// Below by, a chain has cross and an issuing certificate; below root, only the latter.
	if !allowsBelow(by, 2) || !allowsBelow(root, 1) {
		return errors.New("the path length of a root leaves no room")
	}
	if at.IsZero() {
		return nil
	}
	for _, c := range []*x509.Certificate{by, cross, root} {
		if at.Before(c.NotBefore) || at.After(c.NotAfter) {
			return fmt.Errorf("it is %s, and one of them is valid from %s to %s", at.UTC().Format(time.RFC3339),
				c.NotBefore.UTC().Format(time.RFC3339), c.NotAfter.UTC().Format(time.RFC3339))
		}
	}
	return nil
}

// SelfSigned reports whether c is a self-signed CA certificate.
func SelfSigned(c *x509.Certificate) bool {
	return c.BasicConstraintsValid && c.IsCA && bytes.Equal(c.RawSubject, c.RawIssuer) && c.CheckSignatureFrom(c) == nil
}

// allowsBelow reports whether c's path length allows n authorities below it.
func allowsBelow(c *x509.Certificate, n int) bool {
	return c.MaxPathLen < 0 || c.MaxPathLen == 0 && !c.MaxPathLenZero || c.MaxPathLen >= n
}

// sameExtensions ignores the authority key identifier.
func sameExtensions(a, b *x509.Certificate) bool {
	rest := func(c *x509.Certificate) []pkix.Extension {
		return slices.DeleteFunc(slices.Clone(c.Extensions), func(e pkix.Extension) bool {
			return e.Id.Equal(oidAuthorityKeyID)
		})
	}
	return slices.EqualFunc(rest(a), rest(b), func(x, y pkix.Extension) bool {
		return x.Id.Equal(y.Id) && x.Critical == y.Critical && bytes.Equal(x.Value, y.Value)
	})
}
