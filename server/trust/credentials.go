// Package trust decides which certificates a node accepts: its own, its authority's and its brokers'.
package trust

import (
	"crypto"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	"muster/internal/wire"
)

// ErrExpired means that a certificate has expired by the node's clock.
var ErrExpired = errors.New("certificate has expired")

// A Clock returns the time at which to check a certificate that is valid from notBefore: the node's time, but not
// before notBefore.
type Clock func(notBefore time.Time) time.Time

// Credentials are a node's key and certificate, checked against each other and the authority.
type Credentials struct {
	Key         crypto.Signer
	Chain       []*x509.Certificate // leaf first
	Roots       []*x509.Certificate
	TrustDomain string
	Serial      string // lower-case hex
}

// Leaf returns the node's own certificate.
func (c *Credentials) Leaf() *x509.Certificate { return c.Chain[0] }

// Check checks that certificate, a chain in PEM, is valid under the roots and is id's node certificate for key. The
// error may wrap [ErrExpired].
func Check(
	key crypto.Signer, certificate string, roots []*x509.Certificate, id wire.Identity, now Clock,
) (*Credentials, error) {
	chain, err := ParseCertificates(certificate)
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	leaf := chain[0]
	if !wire.SamePublicKey(leaf.PublicKey, key.Public()) {
		return nil, errors.New("certificate is for another key")
	}
	trustDomain, err := CheckNames(leaf, id)
	if err != nil {
		return nil, err
	}
	// A backdated certificate may begin before its authority does.
	at := now(latestStart(slices.Concat(chain, roots)...))
	if !at.Before(leaf.NotAfter) {
		return nil, fmt.Errorf("%w, at %s", ErrExpired, leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	_, err = leaf.Verify(x509.VerifyOptions{
		Roots:         pool(roots),
		Intermediates: pool(chain[1:]),
		CurrentTime:   at,
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	return &Credentials{
		Key:         key,
		Chain:       chain,
		Roots:       roots,
		TrustDomain: trustDomain,
		Serial:      fmt.Sprintf("%x", leaf.SerialNumber),
	}, nil
}

// CheckNames checks that leaf is the node certificate of id, and returns its trust domain.
func CheckNames(leaf *x509.Certificate, id wire.Identity) (trustDomain string, err error) {
	if leaf.VerifyHostname(string(id)) != nil {
		return "", fmt.Errorf("certificate is for %.200q, want %q", leaf.DNSNames, string(id))
	}
	trustDomain = domainOf(leaf)
	role, name, err := wire.RoleOf(leaf, trustDomain)
	if err != nil {
		return "", err
	}
	if role != wire.RoleNode || name != string(id) {
		return "", fmt.Errorf("certificate is of %s %q, want %s %q", role, name, wire.RoleNode, string(id))
	}
	return trustDomain, nil
}

// Owner returns the name in a certificate of any authority; "" if the name is id.
func Owner(leaf *x509.Certificate, id wire.Identity) string {
	if _, err := CheckNames(leaf, id); err == nil {
		return ""
	}
	if role, name, err := wire.RoleOf(leaf, domainOf(leaf)); err == nil && role == wire.RoleNode {
		return name
	}
	return fmt.Sprintf("%.200q", leaf.Subject.String())
}

func domainOf(leaf *x509.Certificate) string {
	if len(leaf.URIs) == 1 {
		return leaf.URIs[0].Host
	}
	return ""
}

// fingerprint returns the lower-case hex SHA-256 of the DER, as in a token's pin.
func fingerprint(c *x509.Certificate) string { return fmt.Sprintf("%x", sha256.Sum256(c.Raw)) }

func (c *Credentials) tls() tls.Certificate {
	t := tls.Certificate{PrivateKey: c.Key, Leaf: c.Leaf()}
	for _, cert := range c.Chain {
		t.Certificate = append(t.Certificate, cert.Raw)
	}
	return t
}

func pool(certs []*x509.Certificate) *x509.CertPool {
	p := x509.NewCertPool()
	for _, c := range certs {
		p.AddCert(c)
	}
	return p
}

func latestStart(certs ...*x509.Certificate) time.Time {
	var start time.Time
	for _, c := range certs {
		if c.NotBefore.After(start) {
			start = c.NotBefore
		}
	}
	return start
}
