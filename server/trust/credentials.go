// Package trust decides which certificates a node accepts: its own, its authority's and its brokers'.
package trust

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"slices"
	"time"

	"muster/internal/inputfile"
	"muster/internal/keyfile"
	"muster/internal/wire"
	"muster/server/advice"
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
	if err := Verify(chain, roots, now, x509.ExtKeyUsageClientAuth); err != nil {
		return nil, err
	}
	return &Credentials{
		Key:         key,
		Chain:       chain,
		Roots:       roots,
		TrustDomain: trustDomain,
		Serial:      fmt.Sprintf("%x", leaf.SerialNumber),
	}, nil
}

// Verify checks that the first certificate of a chain is valid under the roots for a usage. The error may wrap
// [ErrExpired].
func Verify(chain, roots []*x509.Certificate, now Clock, usage x509.ExtKeyUsage) error {
	// A backdated certificate may begin before its authority does.
	at := now(latestStart(slices.Concat(chain, roots)...))
	if end := chain[0].NotAfter; !at.Before(end) {
		return fmt.Errorf("%w, at %s", ErrExpired, end.UTC().Format(time.RFC3339))
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots:         pool(roots),
		Intermediates: pool(chain[1:]),
		CurrentTime:   at,
		KeyUsages:     []x509.ExtKeyUsage{usage},
	})
	if err != nil {
		return fmt.Errorf("certificate: %w", err)
	}
	return nil
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

const remedyExposed = "run that command, and start the agent again if it has stopped; " +
	"if the key may have been read, revoke the node and enroll it with a new key"

// ub-common-name of RFC 5280 appendix A.1. A longer identity is only in the SAN.
const maxCommonName = 64

// NewKey returns a new P-256 key.
func NewKey() (crypto.Signer, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

// ReadKey reads a private key of a kind that provisioners certify. If other users can read it, the error wraps
// [keyfile.ErrExposed]. Errors never show the key.
func ReadKey(path string) (crypto.Signer, error) {
	b, err := keyfile.ReadSecret(path, inputfile.Configured)
	if errors.Is(err, keyfile.ErrExposed) {
		return nil, advice.New(err, remedyExposed)
	}
	if err != nil {
		return nil, err
	}
	key, err := keyfile.Parse(b, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	switch k := key.(type) {
	case *ecdsa.PrivateKey:
		if k.Curve == elliptic.P256() || k.Curve == elliptic.P384() {
			return k, nil
		}
	case *rsa.PrivateKey:
		if n := k.N.BitLen(); n >= 2048 && n <= 4096 {
			return k, nil
		}
	case ed25519.PrivateKey:
		return k, nil
	}
	return nil, fmt.Errorf("%s: a key of kind %s, want P-256, P-384, Ed25519 or RSA of 2048 to 4096 bits", path,
		keyfile.Kind(key))
}

// NewCSR returns a certificate request (PKCS #10, DER) for id, signed by key.
func NewCSR(key crypto.Signer, id wire.Identity) ([]byte, error) {
	template := x509.CertificateRequest{DNSNames: []string{string(id)}}
	if len(id) <= maxCommonName {
		template.Subject = pkix.Name{CommonName: string(id)}
	}
	return x509.CreateCertificateRequest(rand.Reader, &template, key)
}

// RequestedIdentity returns the identity in csr, which is not parsed. The error means that csr is not a valid request
// by key.
func RequestedIdentity(csr []byte, key crypto.Signer) (wire.Identity, error) {
	r, err := x509.ParseCertificateRequest(csr)
	if err == nil {
		err = r.CheckSignature()
	}
	switch {
	case err != nil:
		return "", err
	case !wire.SamePublicKey(r.PublicKey, key.Public()):
		return "", errors.New("a certificate request by another key")
	case len(r.DNSNames) != 1:
		return "", fmt.Errorf("a certificate request for %d names, want one", len(r.DNSNames))
	}
	return wire.Identity(r.DNSNames[0]), nil
}

// A certificate is valid from five minutes before its issue. They do not count as its life.
const backdate = 5 * time.Minute

// LifeOf returns when a certificate was issued, and how long it is valid from then on.
func LifeOf(leaf *x509.Certificate) (start time.Time, life time.Duration) {
	start = leaf.NotBefore
	if leaf.NotAfter.Sub(start) > backdate {
		start = start.Add(backdate)
	}
	return start, leaf.NotAfter.Sub(start)
}
