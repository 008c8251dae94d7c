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

// RollConfig configures [Roll].
type RollConfig struct {
	// Root is the root to take over from and RootKey its key. Required.
	Root    *x509.Certificate
	RootKey crypto.Signer

	// TrustDomain is the one of [Config]. Required.
	TrustDomain string

	// Now is the clock. Optional; defaults to [time.Now].
	Now func() time.Time
}

// Rolled is a new authority that an old one vouches for.
type Rolled struct {
	*Generated

	// Cross holds two certificates, which RFC 4210 section 4.4 calls new with
	// old and old with new: the new root's key certified by the old root, so
	// that whoever knows only the old one can trust the new, and the other
	// way round.
	Cross    []*x509.Certificate
	CrossPEM string
}

var (
	oidNameConstraints = asn1.ObjectIdentifier{2, 5, 29, 30}
	oidAuthorityKeyID  = asn1.ObjectIdentifier{2, 5, 29, 35}
)

// Roll makes a new authority to take over from the one of cfg.Root: a root and
// an issuing CA with keys of their own, named after the old root and numbered,
// under the same name constraints, and the cross certificates that tie both
// together. Nothing is written.
//
// A root that has expired can be rolled over too, and then vouches for the new
// one towards the store only: nodes accept no word of it any more.
func Roll(cfg RollConfig) (*Rolled, error) {
	if cfg.Root == nil || cfg.RootKey == nil {
		return nil, errors.New("roll authority over: no root or no key of it")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if !samePublicKey(cfg.Root.PublicKey, cfg.RootKey.Public()) {
		return nil, errors.New("roll authority over: the key is not the root certificate's")
	}
	name, n := Generation(cfg.Root)
	constraints := slices.DeleteFunc(slices.Clone(cfg.Root.Extensions), func(e pkix.Extension) bool {
		return !e.Id.Equal(oidNameConstraints)
	})
	g, err := generate(GenerateConfig{TrustDomain: cfg.TrustDomain, Name: name, Now: cfg.Now}, n+1, constraints)
	if err != nil {
		return nil, fmt.Errorf("roll authority over: %w", err)
	}
	newWithOld, err := CrossSign(g.Root, cfg.Root, cfg.RootKey)
	if err != nil {
		return nil, fmt.Errorf("roll authority over: %w", err)
	}
	oldWithNew, err := CrossSign(cfg.Root, g.Root, g.RootKey)
	if err != nil {
		return nil, fmt.Errorf("roll authority over: %w", err)
	}
	return &Rolled{
		Generated: g,
		Cross:     []*x509.Certificate{newWithOld, oldWithNew},
		CrossPEM:  encodePEM(newWithOld.Raw) + encodePEM(oldWithNew.Raw),
	}, nil
}

// Generation returns the name that a root's was made from and its number: 1 for
// the first, which does not say so.
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

// CrossSign returns a certificate for root's key and name, and with root's own
// extensions, signed by another root: see [wire.CheckCross]. It is valid while
// both are; if by has expired, while root is.
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
		if !e.Id.Equal(oidAuthorityKeyID) { // that is by's
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
	// What was signed must be worth something to those it is made for.
	if err := wire.CheckCross(c, by, root, time.Time{}); err != nil {
		return nil, err
	}
	return c, nil
}
