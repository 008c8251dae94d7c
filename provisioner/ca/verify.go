package ca

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"muster/internal/wire"
)

// ErrUntrusted means a certificate of another installation or outside its validity.
var ErrUntrusted = errors.New("certificate not trusted")

// Verify checks that leaf is a client certificate of this installation, valid at the given time; zero means now. The
// peer's intermediates may lack the issuing certificate. The error wraps [ErrUntrusted]. Revocation is not checked.
func (a *Authority) Verify(
	leaf *x509.Certificate, intermediates []*x509.Certificate, at time.Time,
) (wire.Role, string, error) {
	role, name, err := a.verify(leaf, intermediates, at)
	if err != nil {
		return "", "", fmt.Errorf("%w: %w", ErrUntrusted, err)
	}
	return role, name, nil
}

func (a *Authority) verify(
	leaf *x509.Certificate, intermediates []*x509.Certificate, at time.Time,
) (wire.Role, string, error) {
	if leaf == nil {
		return "", "", errors.New("no certificate")
	}
	if b := a.cfg.Branch; b != nil && b.issuerOf(leaf) != nil {
		return b.verify(leaf, intermediates, at)
	}
	if leaf.IsCA {
		return "", "", errors.New("a CA's certificate")
	}
	if at.IsZero() {
		at = a.cfg.Now()
	}
	pool := a.trust.intermediates
	if len(intermediates) > 0 {
		pool = pool.Clone()
		for _, c := range intermediates {
			pool.AddCert(c)
		}
	}
	// Every profile has clientAuth.
	if _, err := leaf.Verify(x509.VerifyOptions{
		Roots:         a.trust.roots,
		Intermediates: pool,
		CurrentTime:   at,
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}); err != nil {
		return "", "", err
	}
	role, name, err := wire.RoleOf(leaf, a.cfg.TrustDomain)
	if err != nil {
		return "", "", err
	}
	if err := checkName(role, name); err != nil {
		return "", "", err
	}
	if profiles[role].identity && !slices.Contains(leaf.DNSNames, name) {
		return "", "", fmt.Errorf("identity %q is not among its DNS names", name)
	}
	return role, name, nil
}

func hasConstraints(c *x509.Certificate) bool {
	return slices.ContainsFunc(c.Extensions, func(e pkix.Extension) bool { return e.Id.Equal(oidNameConstraints) })
}

// Try signs throwaway certificates of the broker and of a node, and verifies them as nodes do. The node is in the trust
// domain or beside the broker, as an authority may be limited to one of them. The error says what nodes would refuse.
// An authority that cannot issue now passes: see [Authority.Usable].
func (a *Authority) Try(broker Request) error {
	if a.Usable() != nil {
		return nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("throwaway key: %w", err)
	}
	broker.PublicKey = key.Public()
	if err := a.try(broker); err != nil {
		return err
	}
	node := Request{Role: wire.RoleNode, PublicKey: key.Public(), ServerAuth: true}
	_, beside, _ := strings.Cut(broker.Name, ".")
	for _, domain := range []string{beside, a.cfg.TrustDomain} {
		if domain == "" {
			continue
		}
		node.Name = "throwaway." + domain
		if err = a.try(node); err == nil {
			return nil
		}
	}
	return err
}

func (a *Authority) try(r Request) error {
	c, err := a.issue(r)
	if err == nil {
		err = a.accepted(c)
	}
	if err == nil || errors.Is(err, ErrRequest) { // the caller reports its own request
		return nil
	}
	return fmt.Errorf("nodes would refuse its certificates, as for the %s %s: %w: have an issuing certificate "+
		"signed without this limit", r.Role, strings.Join(append([]string{r.Name}, r.DNSNames...), " "), err)
}

// accepted verifies a certificate as its peers do, for each of its usages.
func (a *Authority) accepted(c *Certificate) error {
	leaf, err := x509.ParseCertificate(c.DER)
	if err != nil {
		return err
	}
	for _, usage := range leaf.ExtKeyUsage {
		if _, err := leaf.Verify(x509.VerifyOptions{
			Roots:         a.trust.roots,
			Intermediates: a.trust.intermediates,
			CurrentTime:   a.cfg.Now(),
			KeyUsages:     []x509.ExtKeyUsage{usage},
		}); err != nil {
			return err
		}
	}
	return nil
}

// maxShownBytes is enough for a chain with cross certificates.
const maxShownBytes = 16 << 10

// CheckShown is a [tls.Config].VerifyPeerCertificate for servers that verify later: what a client shows is kept as long
// as the connection. It returns an error if that is too much, and verifies nothing.
func CheckShown(shown [][]byte, _ [][]*x509.Certificate) error {
	if n := len(bytes.Join(shown, nil)); n > maxShownBytes {
		return fmt.Errorf("%d bytes of certificates, limit %d", n, maxShownBytes)
	}
	return nil
}
