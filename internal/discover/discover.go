// Package discover finds brokers from a list of URLs, or from a domain's SRV records (RFC 2782). The agent asks a
// [Resolver] before every attempt to connect, so changes of DNS take effect without a restart.
//
// DNS is not authenticated. In the fleet account a broker must show a certificate of the pinned authority with the
// broker's role and the SRV target's DNS name. RFC 9525 section 6.1 wants the SRV domain in the certificate instead,
// but here only brokers have such certificates. If a node has only a token, sealed mode protects its messages. In
// plain mode they are not protected (docs/security.md).
package discover

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"muster/internal/wire"
)

// Every error of [Resolver.Brokers] wraps one of these. Retry later.
var (
	// ErrNoBrokers means that the domain has no usable SRV record.
	ErrNoBrokers = errors.New("no brokers found")

	// ErrLookup means that no name server gave a usable answer.
	ErrLookup = errors.New("name servers gave no answer")
)

// The second service is used only if the first has no usable record.
var services = [...]string{"_choria-provisioner._tcp", "_muster-provisioner._tcp"}

// defaultTimeout is enough for a working resolver.
const defaultTimeout = 2 * time.Second

// Config configures [New]. Set either URLs or SRVDomain.
type Config struct {
	// URLs are in order of preference; see [NormalizeURL].
	URLs []string

	// SRVDomain is the domain with SRV records; a trailing dot is allowed.
	SRVDomain string

	// Secure replaces a missing scheme and nats by tls, and ws by wss.
	Secure bool

	// Resolvers are DNS servers, IP address and port. Defaults to those of ResolvConf, read for each lookup.
	Resolvers []string

	// ResolvConf defaults to /etc/resolv.conf.
	ResolvConf string

	// Timeout bounds one query, 2s by default. A lookup sends at most four queries to each server.
	Timeout time.Duration

	// Rand returns a random number from 0 to n-1, for SRV weights. Defaults to math/rand/v2.
	Rand func(n int64) int64
}

// A Broker is an address to try.
type Broker struct {
	URL    string // scheme://host:port
	Host   string // IP address without brackets, or lower-case host name
	Source string // "static" or the name of the SRV record
}

// SourceStatic is the Source of configured URLs.
const SourceStatic = "static"

// New returns an error that lists every mistake in cfg. It sends no DNS query.
func New(cfg Config) (*Resolver, error) {
	cfg.Timeout = cmp.Or(cfg.Timeout, defaultTimeout)
	cfg.ResolvConf = cmp.Or(cfg.ResolvConf, "/etc/resolv.conf")
	if cfg.Rand == nil {
		cfg.Rand = rand.Int64N
	}
	r := &Resolver{cfg: cfg}
	var errs []error
	if (len(cfg.URLs) > 0) == (cfg.SRVDomain != "") {
		errs = append(errs, errors.New("want URLs or an SRV domain, not both"))
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

func parseDomain(s string) (string, error) {
	domain, err := wire.ParseName(s)
	if err != nil {
		return "", fmt.Errorf("SRV domain %.80q: want a host name: %w", s, err)
	}
	// The longest service name is put before the domain (RFC 1035 section 2.3.4).
	if limit := wire.MaxIdentityBytes - len(services[0]) - 1; len(domain) > limit {
		return "", fmt.Errorf("SRV domain of %d bytes, limit %d", len(domain), limit)
	}
	return string(domain), nil
}
