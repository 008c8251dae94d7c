package ca

import (
	"cmp"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Bounds of a certificate's lifetime.
const (
	// MinTTL is the shortest lifetime that can be asked for. Renewal takes
	// seconds, so anything shorter would expire on its way.
	MinTTL = time.Minute

	// DefaultMaxTTL and DefaultTTL apply where [Config] says nothing.
	DefaultMaxTTL = 90 * 24 * time.Hour
	DefaultTTL    = 30 * 24 * time.Hour
)

// Backdate is how far before its issue a certificate begins: a node whose
// clock is this much late can use it at once.
const Backdate = 5 * time.Minute

// ErrAuthority means that the authority itself cannot issue: its certificate
// has expired or is about to, or its key did not sign. The same request may
// succeed once an operator has mended that.
var ErrAuthority = errors.New("the authority cannot issue")

// Config configures [New].
type Config struct {
	// Root is the self-signed certificate that nodes pin. Required.
	Root *x509.Certificate

	// Issuing is the certificate, signed by Root, of the CA that signs every
	// other certificate. Required; it cannot be Root itself.
	Issuing *x509.Certificate

	// Key is the private key of Issuing. Required. Its Sign method is called
	// by concurrent calls of Issue.
	Key crypto.Signer

	// TrustDomain is the host part of every SPIFFE ID: a lower-case host name.
	// Required.
	TrustDomain string

	// MaxTTL is the longest lifetime that can be asked for, MinTTL or more.
	// Optional; defaults to DefaultMaxTTL.
	MaxTTL time.Duration

	// DefaultTTL is the lifetime where a request names none, MinTTL to MaxTTL.
	// Optional; defaults to [DefaultTTL], or to MaxTTL if that is shorter.
	DefaultTTL time.Duration

	// Now is the clock. Optional; defaults to [time.Now].
	Now func() time.Time
}

// An Authority issues and verifies the certificates of one installation. It is
// immutable and safe for concurrent use if its key is; keys of the standard
// library are.
type Authority struct {
	root, issuing *x509.Certificate
	key           crypto.Signer
	trustDomain   string
	maxTTL        time.Duration
	defaultTTL    time.Duration
	now           func() time.Time

	roots         *x509.CertPool // root only; never handed out
	intermediates *x509.CertPool // issuing only; never handed out
	issuingPEM    string
	fingerprint   string
}

// New checks cfg and returns the authority that it describes, or an error that
// lists everything wrong with it. An authority whose certificates have expired
// is refused, and that error wraps [ErrAuthority].
func New(cfg Config) (*Authority, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.MaxTTL = cmp.Or(cfg.MaxTTL, DefaultMaxTTL)
	cfg.DefaultTTL = cmp.Or(cfg.DefaultTTL, min(DefaultTTL, cfg.MaxTTL))

	errs := cfg.checkSettings()
	if cfg.Root != nil {
		errs = append(errs, checkRoot(cfg.Root)...)
	}
	if cfg.Issuing != nil {
		errs = append(errs, checkCA("issuing", cfg.Issuing)...)
	}
	if cfg.Root != nil && cfg.Issuing != nil {
		errs = append(errs, checkPair(cfg.Root, cfg.Issuing, cfg.Now())...)
	}
	if cfg.Issuing != nil && cfg.Key != nil && !samePublicKey(cfg.Issuing.PublicKey, cfg.Key.Public()) {
		errs = append(errs, errors.New("key does not belong to the issuing certificate"))
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("certificate authority: %w", errors.Join(errs...))
	}

	a := &Authority{
		root: cfg.Root, issuing: cfg.Issuing, key: cfg.Key, trustDomain: cfg.TrustDomain,
		maxTTL: cfg.MaxTTL, defaultTTL: cfg.DefaultTTL, now: cfg.Now,
		roots: x509.NewCertPool(), intermediates: x509.NewCertPool(),
		issuingPEM: encodePEM(cfg.Issuing.Raw),
	}
	a.roots.AddCert(a.root)
	a.intermediates.AddCert(a.issuing)
	a.fingerprint = certificateFingerprint(a.root.Raw)
	return a, nil
}

// TrustDomain returns the host part of the authority's SPIFFE IDs.
func (a *Authority) TrustDomain() string { return a.trustDomain }

// Fingerprint returns the lower-case hex SHA-256 over the DER of the root
// certificate: what a token pins as `ca`, and what binds a store to this
// authority.
func (a *Authority) Fingerprint() string { return a.fingerprint }

// RootsPEM returns the root certificates in PEM, a node's ca.pem.
func (a *Authority) RootsPEM() string { return encodePEM(a.root.Raw) }

// Roots returns a pool of the root certificates. It is the caller's.
func (a *Authority) Roots() *x509.CertPool { return a.roots.Clone() }

// Chain returns what a TLS peer presents, in PEM: the certificate in leafDER,
// which this authority has issued, and then the issuing one. The certificate is
// not looked at.
func (a *Authority) Chain(leafDER []byte) string { return encodePEM(leafDER) + a.issuingPEM }

// NotAfter returns the last instant at which a certificate of this authority
// can be valid: the earlier end of root and issuing certificate, in UTC.
func (a *Authority) NotAfter() time.Time {
	return slices.MinFunc([]time.Time{a.root.NotAfter, a.issuing.NotAfter}, time.Time.Compare).UTC()
}
