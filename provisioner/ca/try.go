package ca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"

	"muster/internal/wire"
)

func hasConstraints(c *x509.Certificate) bool {
	for _, e := range c.Extensions {
		if e.Id.Equal(oidNameConstraints) {
			return true
		}
	}
	return false
}

// Try signs throwaway certificates of a broker and of a node near it, and a CRL, and verifies them as nodes do. The
// error says what nodes would refuse. An authority that cannot issue now passes: see [Authority.Usable].
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
	var errs []error
	for _, name := range a.nodesNear(broker.DNSNames) {
		err := a.try(Request{Role: wire.RoleNode, Name: name, PublicKey: key.Public(), ServerAuth: true})
		if err == nil {
			return a.tryCRL()
		}
		errs = append(errs, err)
	}
	return errs[0]
}

func (a *Authority) try(r Request) error {
	c, err := a.issue(r)
	if errors.Is(err, ErrRequest) {
		return nil // the caller reports its own request
	}
	if err == nil {
		err = a.accepted(c)
	}
	if err != nil {
		return fmt.Errorf("nodes would refuse its certificates, as for the %s %s: %w: have an issuing certificate "+
			"signed without this limit", r.Role, strings.Join(append([]string{r.Name}, r.DNSNames...), " "), err)
	}
	return nil
}

// nodesNear returns names of which an authority must be able to certify one: beside the brokers, or in a domain to
// which the authority is limited.
func (a *Authority) nodesNear(brokers []string) []string {
	const label = "throwaway."
	near := label + a.cfg.TrustDomain
	for _, name := range brokers {
		if _, domain, _ := strings.Cut(name, "."); strings.Contains(domain, ".") {
			near = label + domain
			break
		}
	}
	names := []string{near}
	for _, domain := range slices.Concat(a.cfg.Root.PermittedDNSDomains, a.cfg.Issuing.PermittedDNSDomains) {
		if !slices.Contains(brokers, domain) {
			names = append(names, label+strings.TrimPrefix(domain, "."))
		}
	}
	return names
}

// accepted verifies a certificate as its peers do, for each of its usages.
func (a *Authority) accepted(c *Certificate) error {
	leaf, err := x509.ParseCertificate(c.DER)
	if err != nil {
		return err
	}
	roots, issuing := x509.NewCertPool(), x509.NewCertPool()
	roots.AddCert(a.cfg.Root)
	issuing.AddCert(a.cfg.Issuing)
	for _, usage := range leaf.ExtKeyUsage {
		if _, err := leaf.Verify(x509.VerifyOptions{
			Roots:         roots,
			Intermediates: issuing,
			CurrentTime:   a.cfg.Now(),
			KeyUsages:     []x509.ExtKeyUsage{usage},
		}); err != nil {
			return err
		}
	}
	return nil
}

func (a *Authority) tryCRL() error {
	now := a.cfg.Now()
	r := &CRLRequest{Number: 1, ThisUpdate: now, NextUpdate: now.Add(MinTTL)}
	der, err := r.sign(a.cfg.Issuing, a.cfg.Key)
	var list *x509.RevocationList
	if err == nil {
		list, err = x509.ParseRevocationList(der)
	}
	if err == nil {
		err = list.CheckSignatureFrom(a.cfg.Issuing)
	}
	if err != nil {
		return fmt.Errorf("it cannot sign CRLs: %w: have an issuing certificate signed with key usage cRLSign", err)
	}
	return nil
}
