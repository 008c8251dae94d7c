package ca

import (
	"bytes"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	"muster/internal/wire"
)

func (cfg *Config) check() []error {
	if cfg.Root == nil || cfg.Issuing == nil || cfg.Key == nil {
		return []error{errors.New("no root certificate, no issuing certificate or no key")}
	}
	errs := checkPair(cfg.Root, cfg.Issuing)
	if cfg.Issuing.KeyUsage&x509.KeyUsageCRLSign == 0 {
		errs = append(errs, errors.New("issuing certificate may not sign CRLs (key usage cRLSign)"))
	}
	if !wire.SamePublicKey(cfg.Issuing.PublicKey, cfg.Key.Public()) {
		errs = append(errs, errors.New("key does not belong to the issuing certificate"))
	}
	errs = append(errs, checkTrustDomain(cfg.TrustDomain))
	if cfg.Branch != nil && cfg.Branch.IssuerKeyID() == keyID(cfg.Issuing) {
		errs = append(errs, errors.New("issuing certificate has the key of the branch"))
	}
	return append(errs, cfg.checkPrevious()...)
}

// checkTrustDomain refuses underscores, which URI constraints of other tools do not expect.
func checkTrustDomain(s string) error {
	if _, err := wire.ParseIdentity(s); err != nil {
		return fmt.Errorf("trust domain %.80q: want a lower-case host name: %w", s, err)
	}
	return nil
}

// checkCA checks a CA certificate by RFC 5280 section 4.2.1.
func checkCA(part string, c, parent *x509.Certificate) []error {
	var errs []error
	if !c.BasicConstraintsValid || !c.IsCA || c.KeyUsage&x509.KeyUsageCertSign == 0 {
		errs = append(errs, fmt.Errorf("%s certificate is not a CA's (basic constraints, key usage)", part))
	}
	if k, ok := c.PublicKey.(*rsa.PublicKey); ok && k.N.BitLen() < minRSABits {
		errs = append(errs, fmt.Errorf("%s certificate has an RSA key of %d bits, want %d or more", part, k.N.BitLen(),
			minRSABits))
	}
	if len(c.SubjectKeyId) == 0 || len(c.RawSubject) <= 2 { // an empty SEQUENCE
		errs = append(errs, fmt.Errorf("%s certificate has no subject or no subject key identifier", part))
	}
	if !bytes.Equal(c.RawIssuer, parent.RawSubject) ||
		parent.CheckSignature(c.SignatureAlgorithm, c.RawTBSCertificate, c.Signature) != nil {
		errs = append(errs, fmt.Errorf("%s certificate is not signed by %q", part, parent.Subject.CommonName))
	}
	return errs
}

func checkPair(root, issuing *x509.Certificate) []error {
	if bytes.Equal(root.Raw, issuing.Raw) {
		return []error{errors.New("issuing certificate is the root itself, want one signed by it")}
	}
	if errs := append(checkCA("root", root, root), checkCA("issuing", issuing, root)...); len(errs) > 0 {
		return errs
	}
	// Verify checks path length, name constraints and extended key usages.
	both := slices.MaxFunc([]time.Time{root.NotBefore, issuing.NotBefore}, time.Time.Compare)
	roots := x509.NewCertPool()
	roots.AddCert(root)
	usages := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if _, err := issuing.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: both, KeyUsages: usages}); err != nil {
		return []error{fmt.Errorf("issuing certificate: %w", err)}
	}
	if root.MaxPathLenZero {
		return []error{errors.New("root certificate allows no CA below it (path length 0)")}
	}
	return nil
}

func checkValid(part string, c *x509.Certificate, now time.Time) error {
	if now.Before(c.NotBefore) {
		return fmt.Errorf("%w: %s certificate is valid from %s, and it is %s; is the clock right?",
			ErrAuthority, part, stamp(c.NotBefore), stamp(now))
	}
	if now.After(c.NotAfter) {
		return fmt.Errorf("%w: %s certificate expired at %s", ErrExpired, part, stamp(c.NotAfter))
	}
	return nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
