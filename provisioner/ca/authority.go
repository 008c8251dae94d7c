package ca

import (
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
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

// Reasons why an authority cannot issue. The same request may succeed once an
// operator has mended that.
var (
	// ErrAuthority means that the authority itself is at fault: it has expired
	// or is not valid yet, or its key did not sign.
	ErrAuthority = errors.New("the authority cannot issue")

	// ErrExpired means that the authority's certificates have expired, or end
	// before a certificate of the shortest lifetime would. It is an
	// [ErrAuthority]. Roll the authority over.
	ErrExpired = fmt.Errorf("%w: it has expired", ErrAuthority)
)

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

	// Previous are the authorities that this one has taken over from, the
	// newest first, at most [MaxPrevious]. Optional.
	Previous []Previous

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
// safe for concurrent use if its key is; keys of the standard library are. All
// that ever changes of it is which previous authorities it trusts.
type Authority struct {
	cfg         Config // set by New, then read-only, as the rest
	fingerprint string
	layout      *layout // of usual certificates; nil if there are none
	trust       trust
}

// New checks cfg and returns the authority that it describes, or an error that
// lists everything wrong with it. Whether it is valid now is not looked at: one
// that has expired still knows its own, and [Authority.Usable] says that it
// does not issue.
func New(cfg Config) (*Authority, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.MaxTTL = cmp.Or(cfg.MaxTTL, DefaultMaxTTL)
	cfg.DefaultTTL = cmp.Or(cfg.DefaultTTL, min(DefaultTTL, cfg.MaxTTL))

	if err := errors.Join(cfg.check()...); err != nil {
		return nil, fmt.Errorf("certificate authority: %w", err)
	}

	cfg.Previous = slices.Clone(cfg.Previous)
	a := &Authority{cfg: cfg, fingerprint: certificateFingerprint(cfg.Root.Raw), trust: cfg.newTrust()}
	if pub, ok := cfg.Issuing.PublicKey.(*ecdsa.PublicKey); ok && pub.Curve == elliptic.P256() {
		a.layout = newLayout(cfg.Issuing)
	}
	return a, nil
}

// Fingerprint returns the lower-case hex SHA-256 over the DER of the root
// certificate: what a token pins as `ca`, and what binds a store to this
// authority.
func (a *Authority) Fingerprint() string { return a.fingerprint }

// RootsPEM returns the root certificates to trust in PEM, a node's ca.pem: the
// present one, then those of previous authorities that are trusted.
func (a *Authority) RootsPEM() string { return a.trust.rootsPEM }

// TrustPEM returns what a node gets in order to trust the roots: [Authority.RootsPEM],
// and then the cross certificates by which they vouch for each other.
func (a *Authority) TrustPEM() string { return a.trust.trustPEM }

// Roots returns a pool of the roots of [Authority.RootsPEM]. It is the caller's.
func (a *Authority) Roots() *x509.CertPool { return a.trust.roots.Clone() }

// Chain returns what a TLS peer presents, in PEM: the certificate in leafDER,
// which this authority has issued, and then the issuing one, present or
// previous. Behind the present one come the cross certificates by which
// previous roots vouch for the present one, so that whoever knows only those
// can verify the chain too.
func (a *Authority) Chain(leafDER []byte) string {
	if len(a.cfg.Previous) > 0 {
		if leaf, err := x509.ParseCertificate(leafDER); err == nil {
			if c := a.issuerOf(leaf); c != nil && c != a.cfg.Issuing {
				return encodePEM(leafDER) + encodePEM(c.Raw)
			}
		}
	}
	return encodePEM(leafDER) + a.trust.chainPEM
}

// Usable reports why the authority cannot issue now: the error wraps
// [ErrExpired], or [ErrAuthority] alone if its time is still to come.
func (a *Authority) Usable() error {
	_, _, err := a.validity(MinTTL)
	return err
}

// NotAfter returns the last instant at which a certificate of this authority
// can be valid: the earlier end of root and issuing certificate, in UTC.
func (a *Authority) NotAfter() time.Time {
	return slices.MinFunc([]time.Time{a.cfg.Root.NotAfter, a.cfg.Issuing.NotAfter}, time.Time.Compare).UTC()
}
