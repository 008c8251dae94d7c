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
	// MinTTL leaves time for a renewal, which takes seconds.
	MinTTL = time.Minute

	DefaultMaxTTL = 90 * 24 * time.Hour
	DefaultTTL    = 30 * 24 * time.Hour
)

// Backdate is for nodes with slow clocks.
const Backdate = 5 * time.Minute

// Reasons why an authority cannot issue now.
var (
	// ErrAuthority means that the authority is not valid now or that its key did not sign.
	ErrAuthority = errors.New("the authority cannot issue")

	// ErrExpired is an [ErrAuthority]: the authority has expired. Roll it over.
	ErrExpired = fmt.Errorf("%w: it has expired", ErrAuthority)
)

// Config configures [New].
type Config struct {
	// Root is the self-signed certificate that nodes pin. Required.
	Root *x509.Certificate

	// Issuing, signed by Root, signs all other certificates. Required.
	Issuing *x509.Certificate

	// Key is Issuing's private key. Its Sign method is called concurrently. Required.
	Key crypto.Signer

	// Previous are earlier authorities, newest first, at most [MaxPrevious]. Optional.
	Previous []Previous

	// TrustDomain is the host of every SPIFFE ID, a lower-case host name. Required.
	TrustDomain string

	// MaxTTL defaults to [DefaultMaxTTL].
	MaxTTL time.Duration

	// DefaultTTL defaults to [DefaultTTL], or MaxTTL if shorter.
	DefaultTTL time.Duration

	// Backdate defaults to [Backdate].
	Backdate time.Duration

	// Branch has the same root, for clients that need CRLs that last. May be nil.
	Branch *Authority

	// Now defaults to [time.Now].
	Now func() time.Time
}

// An Authority issues certificates. It is safe for concurrent use if its key is.
type Authority struct {
	cfg         Config     // read-only
	all         []Previous // the present authority, then the previous ones; read-only
	fingerprint string
	layout      *layout // nil if there is no fast path
	constrained bool    // has name constraints
	trust       trust
}

// New accepts an expired authority; see [Authority.Usable].
func New(cfg Config) (*Authority, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Backdate = cmp.Or(cfg.Backdate, Backdate)
	cfg.MaxTTL = cmp.Or(cfg.MaxTTL, DefaultMaxTTL)
	cfg.DefaultTTL = cmp.Or(cfg.DefaultTTL, min(DefaultTTL, cfg.MaxTTL))

	if err := errors.Join(cfg.check()...); err != nil {
		return nil, fmt.Errorf("certificate authority: %w", err)
	}

	present := Previous{Root: cfg.Root, Issuing: cfg.Issuing, Key: cfg.Key}
	a := &Authority{
		cfg:         cfg,
		all:         append([]Previous{present}, cfg.Previous...),
		fingerprint: certificateFingerprint(cfg.Root.Raw),
		constrained: hasConstraints(cfg.Root) || hasConstraints(cfg.Issuing),
	}
	a.trust = newTrust(a.all)
	if pub, ok := cfg.Issuing.PublicKey.(*ecdsa.PublicKey); ok && pub.Curve == elliptic.P256() {
		a.layout = newLayout(cfg.Issuing)
	}
	return a, nil
}

// Fingerprint returns the lower-case hex SHA-256 over the root's DER. Tokens and stores contain it.
func (a *Authority) Fingerprint() string { return a.fingerprint }

// RootsPEM returns the trusted roots, the present one first, as in a node's ca.pem.
func (a *Authority) RootsPEM() string { return a.trust.rootsPEM }

// TrustPEM returns [Authority.RootsPEM] and the cross certificates between them.
func (a *Authority) TrustPEM() string { return a.trust.trustPEM }

// Roots returns a copy of the pool of trusted roots.
func (a *Authority) Roots() *x509.CertPool { return a.trust.roots.Clone() }

// Chain returns what a TLS peer presents: leaf and issuing certificate. After the present issuing certificate follow
// cross certificates.
func (a *Authority) Chain(leafDER []byte) string {
	if len(a.all) > 1 || a.cfg.Branch != nil {
		if leaf, err := x509.ParseCertificate(leafDER); err == nil {
			if b := a.cfg.Branch; b != nil && b.issuerOf(leaf) != nil {
				return b.Chain(leafDER)
			}
			if c := a.issuerOf(leaf); c != nil && c != a.cfg.Issuing {
				return encodePEM(leafDER) + encodePEM(c.Raw)
			}
		}
	}
	return encodePEM(leafDER) + a.trust.chainPEM
}

// Branch returns [Config].Branch: nil without Puppet.
func (a *Authority) Branch() *Authority { return a.cfg.Branch }

// MaxTTL returns the longest lifetime of a certificate.
func (a *Authority) MaxTTL() time.Duration { return a.cfg.MaxTTL }

// Usable returns [ErrExpired] or [ErrAuthority] if the authority cannot issue now.
func (a *Authority) Usable() error {
	_, _, err := a.validity(MinTTL)
	return err
}

// NotAfter returns when the authority expires, in UTC.
func (a *Authority) NotAfter() time.Time {
	return slices.MinFunc([]time.Time{a.cfg.Root.NotAfter, a.cfg.Issuing.NotAfter}, time.Time.Compare).UTC()
}
