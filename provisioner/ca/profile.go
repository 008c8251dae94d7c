package ca

import (
	"cmp"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
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
}

// Some provisioners serve operators over HTTPS.
var profiles = map[wire.Role]profile{
	wire.RoleNode:        {identity: true, names: true, mayServe: true},
	wire.RoleBroker:      {names: true, needsNames: true, serverAuth: true, mayServe: true},
	wire.RoleProvisioner: {names: true, mayServe: true},
	wire.RoleOperator:    {},
}

func checkName(role wire.Role, name string) error {
	if profiles[role].identity {
		_, err := wire.ParseIdentity(name)
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

type subject struct {
	commonName string // "" if the name is too long
	dnsNames   []string
	addresses  []net.IP
	usages     []x509.ExtKeyUsage
	extensions []pkix.Extension
	ttl        time.Duration
}

// CheckRequest returns why an authority with the given limit would not issue the certificate, or nil. The error wraps
// [ErrRequest].
func CheckRequest(r Request, maxTTL time.Duration) error {
	a := Authority{cfg: Config{MaxTTL: maxTTL, DefaultTTL: min(DefaultTTL, maxTTL)}}
	_, err := a.subject(&r)
	return err
}

// subject lists every mistake. The error wraps [ErrRequest].
func (a *Authority) subject(r *Request) (*subject, error) {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	p, ok := profiles[r.Role]
	if !ok {
		return nil, fmt.Errorf("%w: role %.40q, want node, broker, provisioner or operator", ErrRequest, r.Role)
	}
	s := &subject{ttl: r.TTL, usages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	errs = append(errs, checkName(r.Role, r.Name))
	if len(r.Name) <= maxCommonName {
		s.commonName = r.Name
	}
	_, err := KeyType(r.PublicKey)
	errs = append(errs, err)
	s.ttl = cmp.Or(s.ttl, a.cfg.DefaultTTL)
	if s.ttl < MinTTL || s.ttl > a.cfg.MaxTTL {
		bad("lifetime %v, want %v to %v", s.ttl, MinTTL, a.cfg.MaxTTL)
	}
	if r.ServerAuth && !p.mayServe {
		bad("a certificate of role %s cannot be for a TLS server", r.Role)
	}
	if p.serverAuth || r.ServerAuth {
		s.usages = append(s.usages, x509.ExtKeyUsageServerAuth)
	}
	s.extensions, err = r.extensions()
	errs = append(errs, err)
	if err := errors.Join(append(errs, s.addNames(p, r)...)...); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	return s, nil
}

// addNames adds each approved name once.
func (s *subject) addNames(p profile, r *Request) []error {
	if n := len(r.DNSNames) + len(r.IPAddresses); n > maxRequestNames {
		return []error{fmt.Errorf("%d names, limit %d", n, maxRequestNames)}
	}
	var errs []error
	if p.identity {
		s.dnsNames = append(s.dnsNames, r.Name)
	}
	if len(r.DNSNames)+len(r.IPAddresses) > 0 && !p.names {
		errs = append(errs, fmt.Errorf("a certificate of role %s has no DNS names and no IP addresses", r.Role))
	}
	for _, name := range r.DNSNames {
		if _, err := wire.ParseIdentity(name); err != nil {
			errs = append(errs, fmt.Errorf("DNS name %.80q: %w", name, err))
		}
		if !slices.Contains(s.dnsNames, name) {
			s.dnsNames = append(s.dnsNames, name)
		}
	}
	for _, ip := range r.IPAddresses {
		if ip.To16() == nil || ip.IsUnspecified() || ip.IsMulticast() {
			errs = append(errs, fmt.Errorf("IP address %q: want one of a single machine", ip.String()))
		}
		if !slices.ContainsFunc(s.addresses, ip.Equal) {
			s.addresses = append(s.addresses, ip)
		}
	}
	if p.needsNames && len(r.DNSNames)+len(r.IPAddresses) == 0 {
		errs = append(errs, fmt.Errorf("a certificate of role %s needs a DNS name or an IP address", r.Role))
	}
	return errs
}
