package ca

import (
	"cmp"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"muster/internal/wire"
)

// Bounds of a request.
const (
	maxRequestNames = 32 // DNS names and addresses; a broker has about four

	// maxCommonName is ub-common-name of RFC 5280 appendix A.1. Role names must fit it.
	maxCommonName = 64

	maxRoleName = maxCommonName
)

// ErrRequest means that a certificate cannot be issued as requested. Do not retry.
var ErrRequest = errors.New("certificate cannot be issued as requested")

// A profile is what certificates of a role may contain.
type profile struct {
	identity   bool // the name is an identity and becomes a DNS name
	names      bool // may have further DNS names, and IP addresses
	needsNames bool // must have one of them
	serverAuth bool // always a TLS server
	mayServe   bool // a TLS server on request

	service bool // no subject, clientAuth and URIs on request, a shorter life
}

// ServiceMaxTTL is the longest life of service certificates, and their default.
const ServiceMaxTTL = 30 * 24 * time.Hour

// Some provisioners serve operators over HTTPS.
var profiles = map[wire.Role]profile{
	wire.RoleNode:        {identity: true, names: true, mayServe: true},
	wire.RoleBroker:      {names: true, needsNames: true, serverAuth: true, mayServe: true},
	wire.RoleProvisioner: {names: true, mayServe: true},
	wire.RoleOperator:    {},
	wire.RoleService:     {names: true, needsNames: true, mayServe: true, service: true},
}

func checkName(role wire.Role, name string) error {
	if profiles[role].identity {
		_, err := wire.ParseIdentity(name)
		return err
	}
	if profiles[role].service {
		identity, service, _ := strings.Cut(name, "/")
		_, err := wire.ParseIdentity(identity)
		if err == nil && !wire.ValidCertificateName(service) {
			err = fmt.Errorf("name %.350q, want <identity>/<name of the service certificate>", name)
		}
		return err
	}
	const chars = "abcdefghijklmnopqrstuvwxyz0123456789"
	if name == "" || len(name) > maxRoleName || strings.Trim(name, chars+"._-") != "" ||
		!strings.ContainsRune(chars, rune(name[0])) {
		return fmt.Errorf("name %.80q: want 1 to %d of a-z, 0-9, ., _ and -, beginning with a letter or digit",
			name, maxRoleName)
	}
	return nil
}

// CheckRequest returns why an authority with the given limit would not issue the certificate, or nil. The error wraps
// [ErrRequest].
func CheckRequest(r Request, maxTTL time.Duration) error {
	a := Authority{cfg: Config{MaxTTL: maxTTL, DefaultTTL: min(DefaultTTL, maxTTL)}}
	_, _, err := a.template(&r)
	return err
}

// template returns what the request says of a certificate and its lifetime, or every mistake. The error wraps
// [ErrRequest].
func (a *Authority) template(r *Request) (*x509.Certificate, time.Duration, error) {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	p, ok := profiles[r.Role]
	if !ok {
		return nil, 0, fmt.Errorf("%w: role %.40q, want one of a certificate", ErrRequest, r.Role)
	}
	t := &x509.Certificate{KeyUsage: x509.KeyUsageDigitalSignature, BasicConstraintsValid: true} // and IsCA is false
	if _, isRSA := r.PublicKey.(*rsa.PublicKey); isRSA && p.service {
		t.KeyUsage |= x509.KeyUsageKeyEncipherment // for TLS 1.2 without Diffie-Hellman
	}
	if !p.service || r.ClientAuth {
		t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	}
	errs = append(errs, checkName(r.Role, r.Name))
	// Without a subject, crypto/x509 makes the alternative names critical (RFC 5280 section 4.2.1.6).
	if len(r.Name) <= maxCommonName && !p.service {
		t.Subject.CommonName = r.Name
	}
	_, err := KeyType(r.PublicKey)
	errs = append(errs, err)
	longest, preset := a.cfg.MaxTTL, a.cfg.DefaultTTL
	if p.service {
		longest = min(longest, ServiceMaxTTL)
		preset = longest
	}
	ttl := cmp.Or(r.TTL, preset)
	if ttl < MinTTL || ttl > longest {
		bad("lifetime %v, want %v to %v", ttl, MinTTL, longest)
	}
	if r.ServerAuth && !p.mayServe {
		bad("a certificate of role %s cannot be for a TLS server", r.Role)
	}
	if p.serverAuth || r.ServerAuth {
		t.ExtKeyUsage = append(t.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	if len(t.ExtKeyUsage) == 0 {
		bad("a certificate for neither TLS servers nor clients")
	}
	errs = append(errs, addURIs(t, p, r, a.cfg.TrustDomain))
	t.ExtraExtensions, err = r.extensions()
	errs = append(errs, err)
	if err := errors.Join(append(errs, addNames(t, p, r)...)...); err != nil {
		return nil, 0, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	return t, ttl, nil
}

// addURIs adds the URI of the role and those of a service.
func addURIs(t *x509.Certificate, p profile, r *Request, trustDomain string) error {
	t.URIs = []*url.URL{wire.RoleURI(trustDomain, r.Role, r.Name)}
	if (len(r.URIs) > 0 || r.ClientAuth) && !p.service {
		return fmt.Errorf("a certificate of role %s has no further URIs, and is for clients anyway", r.Role)
	}
	for _, text := range r.URIs {
		u, err := url.Parse(text)
		if err != nil || !wire.ValidServiceURI(text) ||
			u.Scheme == "spiffe" && wire.FoldName(u.Hostname()) == trustDomain {
			return fmt.Errorf("URI %.80q, want one such as https://web.example.net/, not below the trust domain", text)
		}
		t.URIs = append(t.URIs, u)
	}
	return nil
}

// addNames adds each approved name once.
func addNames(t *x509.Certificate, p profile, r *Request) []error {
	if n := len(r.DNSNames) + len(r.IPAddresses) + len(r.URIs); n > maxRequestNames {
		return []error{fmt.Errorf("%d names, limit %d", n, maxRequestNames)}
	}
	var errs []error
	if p.identity {
		t.DNSNames = append(t.DNSNames, r.Name)
	}
	if len(r.DNSNames)+len(r.IPAddresses) > 0 && !p.names {
		errs = append(errs, fmt.Errorf("a certificate of role %s has no DNS names and no IP addresses", r.Role))
	}
	for _, name := range r.DNSNames {
		if _, err := wire.ParseIdentity(name); err != nil {
			errs = append(errs, fmt.Errorf("DNS name %.80q: %w", name, err))
		}
		if !slices.Contains(t.DNSNames, name) {
			t.DNSNames = append(t.DNSNames, name)
		}
	}
	for _, ip := range r.IPAddresses {
		if ip.To16() == nil || ip.IsUnspecified() || ip.IsMulticast() {
			errs = append(errs, fmt.Errorf("IP address %q: want one of a single machine", ip.String()))
		}
		if !slices.ContainsFunc(t.IPAddresses, ip.Equal) {
			t.IPAddresses = append(t.IPAddresses, ip)
		}
	}
	if p.needsNames && len(r.DNSNames)+len(r.IPAddresses)+len(r.URIs) == 0 {
		errs = append(errs, fmt.Errorf("a certificate of role %s needs a DNS name or an IP address", r.Role))
	}
	return errs
}
