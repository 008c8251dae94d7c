// Package discover finds the brokers that a token or a configuration names: as
// a list of URLs, or as a domain whose SRV records (RFC 2782) list them.
//
// The node agent asks a [Resolver] before every attempt to connect, so a fleet
// follows its DNS. Addresses of the hosts are left to the dialer; the package
// opens no connection but to name servers.
//
// # Trust
//
// DNS is not authenticated. A false answer can send a node to any host, even
// outside of the domain asked for, and RFC 2782 means it so: the broker of
// one domain may well be run by another. What is proven is proven later. In the
// fleet account the broker must show a certificate of the pinned authority with
// the broker's role and the DNS name of the target, so a false answer reaches
// another genuine broker at worst. RFC 9525 section 6.1 would have the
// certificate name the domain that the token names (the SRV-ID), because a
// target out of DNS proves nothing under a public authority;
// here only a broker can have such a certificate at all. Before that, with
// a provisioning token, sealed mode protects what is sent; in plain mode
// nothing does, and docs/security.md says so.
package discover

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"muster/internal/wire"
)

// Why there are no brokers to try. Each error of [Resolver.Brokers] wraps
// exactly one; ask again later after any of them.
var (
	// ErrNoBrokers means that the domain has no usable SRV record. The
	// operator has to publish one.
	ErrNoBrokers = errors.New("no brokers found")

	// ErrLookup means that no name server gave an answer that could be used,
	// so nothing is known.
	ErrLookup = errors.New("name servers gave no answer")
)

// services is what is looked up in a domain, in this order: the second is asked
// for only where the first does not exist or is empty.
var services = [...]string{"_choria-provisioner._tcp", "_muster-provisioner._tcp"}

// defaultTimeout bounds one question to one name server. Stub resolvers wait 5 s; a
// resolver that is alive answers within 2 s even if it has to ask around.
const defaultTimeout = 2 * time.Second

// Config configures [New]. Exactly one of URLs and SRVDomain is given.
type Config struct {
	// URLs lists brokers in the order to try, in any form that [NormalizeURL]
	// takes.
	URLs []string

	// SRVDomain is the domain whose SRV records list the brokers, with or
	// without a trailing dot.
	SRVDomain string

	// Secure asks for TLS: brokers out of DNS, and URLs without a scheme or
	// with a plain one, get one with TLS.
	Secure bool

	// Resolvers are the name servers to ask, as IP address and port. Optional;
	// defaults to those of ResolvConf, read again for each lookup.
	Resolvers []string

	// ResolvConf is where name servers are listed. Optional; defaults to
	// /etc/resolv.conf, and to a name server on this machine if that cannot
	// be read or lists none.
	ResolvConf string

	// Timeout bounds one question to one name server. Optional; defaults to
	// 2s. A lookup puts at most four (two names, each asked twice) to each.
	Timeout time.Duration

	// Rand returns a random number from 0 to n-1, for the weights of SRV
	// records; n is 1 or more. Optional; defaults to math/rand/v2.
	Rand func(n int64) int64
}

// A Broker is one place to try.
type Broker struct {
	URL    string // scheme://host:port, always with a port
	Host   string // IP address without brackets, or lower-case host name without trailing dot
	Source string // "static", or the name of the SRV record that it came from
}

// SourceStatic is the Source of brokers that were configured as URLs.
const SourceStatic = "static"

// New returns a resolver, or an error that lists everything wrong with cfg. It
// asks no name server.
func New(cfg Config) (*Resolver, error) {
	cfg.Timeout = cmp.Or(cfg.Timeout, defaultTimeout)
	cfg.ResolvConf = cmp.Or(cfg.ResolvConf, "/etc/resolv.conf")
	if cfg.Rand == nil {
		cfg.Rand = rand.Int64N
	}
	r := &Resolver{cfg: cfg}
	var errs []error
	if (len(cfg.URLs) > 0) == (cfg.SRVDomain != "") {
		errs = append(errs, errors.New("want URLs or an SRV domain, and not both"))
	}
	for _, s := range cfg.URLs {
		b, err := parseURL(s, cfg.Secure)
		if err != nil {
			errs = append(errs, err)
		} else if !slices.Contains(r.static, b) {
			r.static = append(r.static, b)
		}
	}
	if cfg.SRVDomain != "" {
		var err error
		if r.domain, err = parseDomain(cfg.SRVDomain); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("brokers: %w", errors.Join(errs...))
	}
	return r, nil
}

// parseDomain returns an SRV domain as it is asked for.
func parseDomain(s string) (string, error) {
	domain, err := wire.ParseIdentity(strings.ToLower(strings.TrimSuffix(s, ".")))
	if err != nil {
		return "", fmt.Errorf("SRV domain %.80q: want a host name: %w", s, err)
	}
	// The longest service is in front of it (RFC 1035 section 2.3.4).
	if limit := wire.MaxIdentityBytes - len(services[0]) - 1; len(domain) > limit {
		return "", fmt.Errorf("SRV domain of %d bytes, limit %d", len(domain), limit)
	}
	return string(domain), nil
}
