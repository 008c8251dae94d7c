package ca_test

import (
	"crypto/elliptic"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"math/big"
	"net/url"
	"testing"
	"time"

	"muster/internal/wire"
	"muster/provisioner/ca"
)

func TestVerify(t *testing.T) {
	t.Parallel()
	a := authority(t, nil)
	key := newEC(t, elliptic.P256())
	for name, r := range requests() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r.PublicKey = key.Public()
			c, parsed := issue(t, a, r)
			for when, at := range map[string]time.Time{
				"now": {}, "first": c.NotBefore, "last": c.NotAfter,
			} {
				role, got, err := a.Verify(parsed, []*x509.Certificate{config(t).Issuing}, at)
				if r.Role == wire.RoleService { // it opens nothing
					if role != "" || got != "" || !errors.Is(err, ca.ErrUntrusted) {
						t.Errorf("Verify = %s, %q, %v, want %v", role, got, err, ca.ErrUntrusted)
					}
					continue
				}
				if err != nil || role != r.Role || got != r.Name {
					t.Errorf("Verify at its %s instant = %s, %q, %v, want %s, %q", when, role, got, err, r.Role, r.Name)
				}
			}
			for when, at := range map[string]time.Time{
				"before": c.NotBefore.Add(-time.Second), "after": c.NotAfter.Add(time.Second),
			} {
				if role, got, err := a.Verify(parsed, nil, at); role != "" || got != "" ||
					!errors.Is(err, ca.ErrUntrusted) {
					t.Errorf("Verify %s it is valid = %s, %q, %v, want %v", when, role, got, err, ca.ErrUntrusted)
				}
			}
		})
	}
}

func TestVerifyRefuses(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	key := newEC(t, elliptic.P256())
	other, err := ca.Generate("", cfg.Now())
	if err != nil {
		t.Fatal(err)
	}
	// forge signs with our issuing key what no profile allows.
	forge := func(edit func(*x509.Certificate)) *x509.Certificate {
		template := &x509.Certificate{
			SerialNumber: big.NewInt(7), NotBefore: noon.Add(-time.Hour), NotAfter: noon.Add(time.Hour),
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, DNSNames: []string{"web1.example.net"},
			URIs: []*url.URL{wire.RoleURI(trustDomain, wire.RoleNode, "web1.example.net")},
		}
		edit(template)
		return sign(t, template, cfg.Issuing, key.Public(), cfg.Key)
	}
	r := requests()["node"]
	r.PublicKey = key.Public()
	foreign := authority(t, func(c *ca.Config) {
		c.Root, c.Issuing, c.Key = other.Root, other.Issuing,
			other.IssuingKey
	})
	_, foreignLeaf := issue(t, foreign, r)
	elsewhere := authority(t, func(c *ca.Config) { c.TrustDomain = "elsewhere.example.net" })
	_, elsewhereLeaf := issue(t, elsewhere, r)

	tests := map[string]struct {
		leaf          *x509.Certificate
		intermediates []*x509.Certificate
		role          error // also wraps this
	}{
		"none":                       {nil, nil, nil},
		"the issuing CA":             {cfg.Issuing, nil, nil},
		"the root":                   {cfg.Root, nil, nil},
		"of another authority":       {foreignLeaf, []*x509.Certificate{other.Issuing, other.Root}, nil},
		"of another trust domain":    {elsewhereLeaf, nil, wire.ErrRole},
		"signed by itself":           {sign(t, caTemplate("self"), caTemplate("self"), key.Public(), key), nil, nil},
		"signed by a node":           {sign(t, forge(func(*x509.Certificate) {}), forge(func(*x509.Certificate) {}), key.Public(), key), []*x509.Certificate{forge(func(*x509.Certificate) {})}, nil},
		"for servers only":           {forge(func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }), nil, nil},
		"a CA by a node's name":      {forge(func(c *x509.Certificate) { c.BasicConstraintsValid, c.IsCA, c.MaxPathLen = true, true, -1 }), nil, nil},
		"without a URI":              {forge(func(c *x509.Certificate) { c.URIs = nil }), nil, wire.ErrRole},
		"with two URIs":              {forge(func(c *x509.Certificate) { c.URIs = append(c.URIs, c.URIs[0]) }), nil, wire.ErrRole},
		"of an unknown role":         {forge(func(c *x509.Certificate) { c.URIs[0] = wire.RoleURI(trustDomain, "admin", "a") }), nil, wire.ErrRole},
		"with no identity":           {forge(func(c *x509.Certificate) { c.URIs[0] = wire.RoleURI(trustDomain, wire.RoleNode, "Web1") }), nil, wire.ErrIdentity},
		"with another DNS name":      {forge(func(c *x509.Certificate) { c.DNSNames = []string{"web2.example.net"} }), nil, nil},
		"an operator of a bad name":  {forge(func(c *x509.Certificate) { c.URIs[0] = wire.RoleURI(trustDomain, wire.RoleOperator, "-a") }), nil, nil},
		"with an unknown constraint": {forge(func(c *x509.Certificate) { c.ExtraExtensions = unknownCritical }), nil, nil},
	}
	if _, _, err := authority(t, nil).Verify(forge(func(*x509.Certificate) {}), nil, time.Time{}); err != nil {
		t.Fatalf("the base certificate is refused: %v", err)
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			role, got, err := authority(t, nil).Verify(tt.leaf, tt.intermediates, time.Time{})
			if role != "" || got != "" || !errors.Is(err, ca.ErrUntrusted) {
				t.Fatalf("Verify = %s, %q, %v, want %v", role, got, err, ca.ErrUntrusted)
			}
			if tt.role != nil && !errors.Is(err, tt.role) {
				t.Errorf("Verify error = %v, want %v", err, tt.role)
			}
		})
	}
}

// unknownCritical is an unknown critical extension.
var unknownCritical = []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 2, 3, 4}, Critical: true, Value: []byte{5, 0}}}
