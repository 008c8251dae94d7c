package ca

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/internal/wire"
)

// Rolled is a new authority with cross certificates.
type Rolled struct {
	*Generated

	// Cross holds the new root certified by the old, and the old by the new (RFC 4210 section 4.4).
	Cross    []*x509.Certificate
	CrossPEM string
}

var (
	oidNameConstraints = asn1.ObjectIdentifier{2, 5, 29, 30}
	oidAuthorityKeyID  = asn1.ObjectIdentifier{2, 5, 29, 35}
)

// Roll makes a new authority with the old root's name, the next number and the same name constraints. If the old
// root has expired, stores accept its cross certificate but nodes do not.
func Roll(root *x509.Certificate, key crypto.Signer, now time.Time) (*Rolled, error) {
	if !wire.SamePublicKey(root.PublicKey, key.Public()) {
		return nil, errors.New("roll authority over: the key is not the root certificate's")
	}
	name, n := Generation(root)
	constraints := slices.DeleteFunc(slices.Clone(root.Extensions), func(e pkix.Extension) bool {
		return !e.Id.Equal(oidNameConstraints)
	})
	g, err := generate(name, now, n+1, constraints)
	if err != nil {
		return nil, fmt.Errorf("roll authority over: %w", err)
	}
	newWithOld, err := CrossSign(g.Root, root, key)
	if err != nil {
		return nil, fmt.Errorf("roll authority over: %w", err)
	}
	oldWithNew, err := CrossSign(root, g.Root, g.RootKey)
	if err != nil {
		return nil, fmt.Errorf("roll authority over: %w", err)
	}
	return &Rolled{
		Generated: g,
		Cross:     []*x509.Certificate{newWithOld, oldWithNew},
		CrossPEM:  encodePEM(newWithOld.Raw) + encodePEM(oldWithNew.Raw),
	}, nil
}

// Generation splits a root's common name into name and number.
func Generation(root *x509.Certificate) (name string, n int) {
	name, n = root.Subject.CommonName, 1
	if i := strings.LastIndexByte(name, ' '); i > 0 {
		if last, err := strconv.ParseUint(name[i+1:], 10, 16); err == nil && last > 0 {
			name, n = name[:i], int(last)
		}
	}
	name = strings.TrimSuffix(name, rootSuffix)
	if len(name) > maxAuthorityName || !printable(name) {
		name = ""
	}
	return name, n
}

// CrossSign returns a cross certificate for root, signed by another root; see [wire.CheckCross].
func CrossSign(root, by *x509.Certificate, byKey crypto.Signer) (*x509.Certificate, error) {
	template := &x509.Certificate{
		SerialNumber: newSerial(),
		RawSubject:   root.RawSubject,
		NotBefore:    root.NotBefore,
		NotAfter:     root.NotAfter,
	}
	if by.NotBefore.After(template.NotBefore) {
		template.NotBefore = by.NotBefore
	}
	if by.NotAfter.Before(template.NotAfter) && by.NotAfter.After(template.NotBefore) {
		template.NotAfter = by.NotAfter
	}
	for _, e := range root.Extensions {
		if !e.Id.Equal(oidAuthorityKeyID) { // CreateCertificate sets it
			template.ExtraExtensions = append(template.ExtraExtensions, e)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by, root.PublicKey, byKey)
	if err != nil {
		return nil, fmt.Errorf("cross certificate: %w", err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("cross certificate: %w", err)
	}
	if err := wire.CheckCross(c, by, root, time.Time{}); err != nil {
		return nil, err
	}
	return c, nil
}
