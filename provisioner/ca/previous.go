package ca

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"muster/internal/wire"
)

// MaxPrevious keeps replies small; roll-overs rarely overlap.
const MaxPrevious = 2

// Previous is an authority that no longer issues.
type Previous struct {
	// Root may be the present root. Required.
	Root, Issuing *x509.Certificate

	// Cross are cross certificates between Root and a newer root; see [Roll]. Required unless Root is the present
	// root.
	Cross []*x509.Certificate

	// Key signs CRLs only. Optional; without it, Issuing has no CRL.
	Key crypto.Signer
}

type trust struct {
	roots         *x509.CertPool // never handed out
	intermediates *x509.CertPool // never handed out
	rootsPEM      string
	trustPEM      string
	chainPEM      string // follows a certificate of the present issuer
}

func keyID(c *x509.Certificate) string { return hex.EncodeToString(c.SubjectKeyId) }

func (cfg *Config) checkPrevious() []error {
	if len(cfg.Previous) > MaxPrevious {
		return []error{fmt.Errorf("%d previous authorities, limit %d", len(cfg.Previous), MaxPrevious)}
	}
	var errs []error
	newer := []*x509.Certificate{cfg.Root} // newest first: each root must vouch for a newer one
	for i, p := range cfg.Previous {
		bad := func(err error) { errs = append(errs, fmt.Errorf("previous authority %d: %w", i+1, err)) }
		if p.Root == nil || p.Issuing == nil {
			bad(errors.New("no root or no issuing certificate"))
			continue
		}
		for _, err := range checkPair(p.Root, p.Issuing) {
			bad(err)
		}
		if bytes.Equal(p.Issuing.SubjectKeyId, cfg.Issuing.SubjectKeyId) {
			bad(errors.New("its issuing certificate has the present one's key"))
		}
		if p.Key != nil && !wire.SamePublicKey(p.Issuing.PublicKey, p.Key.Public()) {
			bad(errors.New("key does not belong to its issuing certificate"))
		}
		if !hasCross(p.Root, newer, cfg.Previous) {
			bad(errors.New("no cross certificate from its root to a newer one: `muster ca roll` makes it"))
		}
		newer = append(newer, p.Root)
	}
	return errs
}

// hasCross reports whether from vouches for one of roots, even with expired certificates.
func hasCross(from *x509.Certificate, roots []*x509.Certificate, previous []Previous) bool {
	for _, to := range roots {
		if from.Equal(to) {
			return true
		}
		for _, p := range previous {
			for _, c := range p.Cross {
				if wire.CheckCross(c, from, to, time.Time{}) == nil {
					return true
				}
			}
		}
	}
	return false
}

func newTrust(all []Previous) trust {
	t := trust{roots: x509.NewCertPool(), intermediates: x509.NewCertPool()}
	var roots, cross, chain strings.Builder
	seen := map[string]bool{}
	add := func(b *strings.Builder, c *x509.Certificate) {
		if text := encodePEM(c.Raw); !seen[text] {
			seen[text] = true
			b.WriteString(text)
		}
	}
	for _, p := range all {
		t.roots.AddCert(p.Root)
		t.intermediates.AddCert(p.Issuing)
		add(&roots, p.Root)
		for _, c := range p.Cross {
			add(&cross, c)
		}
	}
	seen = map[string]bool{}
	add(&chain, all[0].Issuing)
	for _, p := range all {
		for _, c := range p.Cross {
			if bytes.Equal(c.RawIssuer, p.Root.RawSubject) {
				add(&chain, c)
			}
		}
	}
	t.rootsPEM, t.trustPEM, t.chainPEM = roots.String(), roots.String()+cross.String(), chain.String()
	return t
}

// IssuerOf returns the key id of a recorded certificate's issuer, also of the branch, or "" if unknown.
func (a *Authority) IssuerOf(leafDER []byte) string {
	leaf, err := x509.ParseCertificate(leafDER)
	if err != nil {
		return ""
	}
	if c := a.issuerOf(leaf); c != nil {
		return keyID(c)
	}
	if b := a.cfg.Branch; b != nil {
		return b.IssuerOf(leafDER)
	}
	return ""
}

func (a *Authority) issuerOf(leaf *x509.Certificate) *x509.Certificate {
	for _, p := range a.all {
		c := p.Issuing
		if bytes.Equal(leaf.AuthorityKeyId, c.SubjectKeyId) && bytes.Equal(leaf.RawIssuer, c.RawSubject) {
			return c
		}
	}
	return nil
}

// PreviousFingerprints returns fingerprints of previous roots. A store may still be bound to one.
func (a *Authority) PreviousFingerprints() []string {
	var all []string
	for _, p := range a.all[1:] {
		if f := certificateFingerprint(p.Root.Raw); f != a.fingerprint && !slices.Contains(all, f) {
			all = append(all, f)
		}
	}
	return all
}
