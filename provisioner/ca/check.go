package ca

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"muster/internal/wire"
)

// checkSettings reports what is wrong with everything but the certificates.
func (cfg *Config) checkSettings() []error {
	var errs []error
	if cfg.Root == nil {
		errs = append(errs, errors.New("no root certificate"))
	}
	if cfg.Issuing == nil {
		errs = append(errs, errors.New("no issuing certificate"))
	}
	if cfg.Key == nil {
		errs = append(errs, errors.New("no key"))
	}
	errs = appendError(errs, checkTrustDomain(cfg.TrustDomain))
	if cfg.MaxTTL < MinTTL {
		errs = append(errs, fmt.Errorf("maximum lifetime %v, want %v or more", cfg.MaxTTL, MinTTL))
	}
	if cfg.DefaultTTL < MinTTL || cfg.DefaultTTL > cfg.MaxTTL {
		errs = append(errs, fmt.Errorf("default lifetime %v, want %v to %v", cfg.DefaultTTL, MinTTL, cfg.MaxTTL))
	}
	return errs
}

// appendError appends err to errs unless it is nil.
func appendError(errs []error, err error) []error {
	if err != nil {
		errs = append(errs, err)
	}
	return errs
}

// checkTrustDomain reports why s is no trust domain. SPIFFE would also allow
// underscores; a host name is what URI constraints of other tools understand.
func checkTrustDomain(s string) error {
	if _, err := wire.ParseIdentity(s); err != nil {
		return fmt.Errorf("trust domain %.80q: want a lower-case host name: %w", s, err)
	}
	return nil
}

// checkCA reports what keeps c, called by its part, from being a CA
// certificate (RFC 5280 section 4.2.1).
func checkCA(part string, c *x509.Certificate) []error {
	var errs []error
	if !c.BasicConstraintsValid || !c.IsCA {
		errs = append(errs, fmt.Errorf("%s certificate is not a CA's (basic constraints)", part))
	}
	if c.KeyUsage&x509.KeyUsageCertSign == 0 {
		errs = append(errs, fmt.Errorf("%s certificate may not sign certificates (key usage)", part))
	}
	if len(c.SubjectKeyId) == 0 {
		errs = append(errs, fmt.Errorf("%s certificate has no subject key identifier", part))
	}
	if len(c.RawSubject) <= 2 { // an empty SEQUENCE
		errs = append(errs, fmt.Errorf("%s certificate has no subject", part))
	}
	return errs
}

// checkRoot reports what keeps c from being a root.
func checkRoot(c *x509.Certificate) []error {
	errs := checkCA("root", c)
	if !bytes.Equal(c.RawSubject, c.RawIssuer) || c.CheckSignature(c.SignatureAlgorithm, c.RawTBSCertificate, c.Signature) != nil {
		errs = append(errs, errors.New("root certificate is not signed by itself"))
	}
	return errs
}

// checkPair reports what keeps issuing from ever working below root.
func checkPair(root, issuing *x509.Certificate) []error {
	var errs []error
	if bytes.Equal(root.Raw, issuing.Raw) {
		return append(errs, errors.New("issuing certificate is the root itself, want one signed by it"))
	}
	if !bytes.Equal(issuing.RawIssuer, root.RawSubject) ||
		root.CheckSignature(issuing.SignatureAlgorithm, issuing.RawTBSCertificate, issuing.Signature) != nil {
		errs = append(errs, errors.New("issuing certificate is not signed by the root"))
	}
	both := issuing.NotBefore
	if root.NotBefore.After(both) {
		both = root.NotBefore
	}
	if both.After(issuing.NotAfter) || both.After(root.NotAfter) {
		errs = append(errs, errors.New("root and issuing certificate are at no time both valid"))
	}
	if len(errs) > 0 {
		return errs
	}
	// What remains is path length, name constraints and extended key usages,
	// which are the verifier's to judge.
	roots := x509.NewCertPool()
	roots.AddCert(root)
	usages := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if _, err := issuing.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: both, KeyUsages: usages}); err != nil {
		errs = append(errs, fmt.Errorf("issuing certificate: %w", err))
	}
	if root.MaxPathLen == 0 && root.MaxPathLenZero {
		errs = append(errs, errors.New("root certificate allows no CA below it (path length 0)"))
	}
	return errs
}

// checkValid reports whether the CA certificate c is outside its validity. The
// error wraps [ErrAuthority], or [ErrExpired] if that is why.
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

// stamp writes an instant as RFC 3339 in UTC.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// samePublicKey reports whether a and b are the same key.
func samePublicKey(a, b crypto.PublicKey) bool {
	k, ok := a.(interface{ Equal(crypto.PublicKey) bool })
	return ok && k.Equal(b)
}
