package ca

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
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
