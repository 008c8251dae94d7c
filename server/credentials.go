package server

import (
	"crypto"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"muster/internal/wire"
)

// Limits on PEM files: a chain has two certificates, a fleet that changes its
// root two roots for a while.
const (
	maxCertificates = 8
	maxPEMBytes     = wire.MaxReplyBytes
)

// errExpired means that a certificate is over by the node's most tolerant clock.
var errExpired = errors.New("certificate has expired")

// credentials are a node's key and certificate, checked against each other and
// against the authority.
type credentials struct {
	key         crypto.Signer
	chain       []*x509.Certificate // the node's, then the issuing ones
	roots       *x509.CertPool
	trusted     []*x509.Certificate // what roots has
	trustDomain string
	serial      string // lower-case hex
}

func (c *credentials) leaf() *x509.Certificate { return c.chain[0] }

// tlsCertificate returns what the node presents.
func (c *credentials) tlsCertificate() tls.Certificate {
	t := tls.Certificate{PrivateKey: c.key, Leaf: c.leaf()}
	for _, cert := range c.chain {
		t.Certificate = append(t.Certificate, cert.Raw)
	}
	return t
}

// readCredentials reads and checks what lies in the live directory. now is
// asked for the time by which a certificate with a given start is judged.
func readCredentials(at places, id wire.Identity, now func(notBefore time.Time) time.Time) (*credentials, error) {
	key, err := readKey(at.in(keyFile))
	if err != nil {
		return nil, err
	}
	certificate, err := readBounded(at.in(certificateFile), maxPEMBytes)
	if err != nil {
		return nil, err
	}
	ca, err := readBounded(at.in(caFile), maxPEMBytes)
	if err != nil {
		return nil, err
	}
	roots, err := parseCertificates(string(ca))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", at.in(caFile), err)
	}
	c, err := checkCredentials(key, string(certificate), roots, id, now)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", at.in(certificateFile), err)
	}
	return c, nil
}

// checkCredentials checks that certificate, a chain in PEM, is id's node
// certificate for key under the roots, and valid.
func checkCredentials(key crypto.Signer, certificate string, roots []*x509.Certificate, id wire.Identity, now func(time.Time) time.Time) (*credentials, error) {
	chain, err := parseCertificates(certificate)
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	leaf := chain[0]
	if !samePublicKey(leaf.PublicKey, key.Public()) {
		return nil, errors.New("certificate is for another key")
	}
	trustDomain, err := checkNames(leaf, id)
	if err != nil {
		return nil, err
	}
	// A certificate is backdated, its authority may be younger than that.
	at := now(latestStart(slices.Concat(chain, roots)...))
	if !at.Before(leaf.NotAfter) {
		return nil, fmt.Errorf("%w, at %s", errExpired, leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	pool := newPool(roots)
	_, err = leaf.Verify(x509.VerifyOptions{Roots: pool, Intermediates: newPool(chain[1:]), CurrentTime: at,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	return &credentials{key: key, chain: chain, roots: pool, trusted: roots, trustDomain: trustDomain,
		serial: fmt.Sprintf("%x", leaf.SerialNumber)}, nil
}

// checkNames checks that leaf is the node certificate of id, and returns the
// trust domain that it is of.
func checkNames(leaf *x509.Certificate, id wire.Identity) (trustDomain string, err error) {
	if leaf.VerifyHostname(string(id)) != nil {
		return "", fmt.Errorf("certificate is for %.200q, want %q", leaf.DNSNames, string(id))
	}
	if len(leaf.URIs) == 1 {
		trustDomain = leaf.URIs[0].Host
	}
	role, name, err := wire.RoleOf(leaf, trustDomain)
	if err != nil {
		return "", err
	}
	if role != wire.RoleNode || name != string(id) {
		return "", fmt.Errorf("certificate is of %s %q, want %s %q", role, name, wire.RoleNode, string(id))
	}
	return trustDomain, nil
}

// parseCertificates parses 1 to 8 certificates in PEM. Text between the blocks
// is refused, since other readers may take it for something.
func parseCertificates(s string) ([]*x509.Certificate, error) {
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

func newPool(certs []*x509.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, c := range certs {
		pool.AddCert(c)
	}
	return pool
}

// fingerprint is how a token pins an authority: lower-case hex SHA-256 of the
// certificate's DER.
func fingerprint(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:])
}
