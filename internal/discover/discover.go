// Package discover finds brokers from a list of URLs, or from a domain's SRV records (RFC 2782). The agent asks before
// every attempt to connect, so changes of DNS take effect without a restart.
//
// DNS is not authenticated. In the fleet account a broker must show a certificate of the pinned authority with the
// broker's role and the SRV target's DNS name (RFC 9525 section 6.1 wants the SRV domain, but only brokers have such
// certificates here). If a node has only a token, sealed mode protects its messages, and plain mode its certificate and
// configuration (docs/security.md).
package discover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"

	"muster/internal/wire"
)

// ErrNoBrokers means that DNS gave no usable SRV record of the domain. Retry later.
var ErrNoBrokers = errors.New("no brokers found")

// The second service is used only if the first has no usable record.
var services = [...]string{"_choria-provisioner._tcp", "_muster-provisioner._tcp"}

// maxBrokers is applied after the random draw, so that each call can keep different records.
const maxBrokers = 64

// Config says where to find brokers. Set either URLs or SRVDomain.
type Config struct {
	// URLs are in order of preference; see [NormalizeURL].
	URLs []string

	// SRVDomain is the domain with SRV records; a trailing dot is allowed.
	SRVDomain string

	// Secure replaces a missing scheme and nats by tls, and ws by wss.
	Secure bool

	// Resolver asks DNS. Nil: as resolv.conf says.
	Resolver *net.Resolver
}

// A Broker is an address to try.
type Broker struct {
	URL    string // scheme://host:port
	Host   string // IP address without brackets, or lower-case host name
	Source string // "static" or the name of the SRV record
}

// SourceStatic is the Source of configured URLs.
const SourceStatic = "static"

// Check returns an error that lists every mistake in cfg. It sends no DNS query.
func (cfg Config) Check() error {
	_, _, err := cfg.parse()
	return err
}

func (cfg Config) parse() (static []Broker, domain string, err error) {
	var errs []error
	if (len(cfg.URLs) > 0) == (cfg.SRVDomain != "") {
		errs = append(errs, errors.New("want URLs or an SRV domain, not both"))
	}
	for _, s := range cfg.URLs {
		b, err := parseURL(s, cfg.Secure)
		if err != nil {
			errs = append(errs, err)
		} else if !slices.Contains(static, b) {
			static = append(static, b)
		}
	}
	if cfg.SRVDomain != "" {
		domain, err = parseDomain(cfg.SRVDomain)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, "", fmt.Errorf("brokers: %w", err)
	}
	return static, domain, nil
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

// Brokers returns at least one broker, in the order to try. With a domain, each call asks DNS and draws a new order
// by weight, so that nodes spread. The error is that of [Config.Check], or wraps [ErrNoBrokers]. Once ctx is canceled,
// it returns after the time-out of one query, usually 5 s.
func (cfg Config) Brokers(ctx context.Context) ([]Broker, error) {
	static, domain, err := cfg.parse()
	if err != nil || domain == "" {
		return static, err
	}
	var none []string
	for _, service := range services {
		name := service + "." + domain
		_, records, err := cfg.Resolver.LookupSRV(ctx, "", "", name+".") // the dot: without domains to search
		if brokers := cfg.usable(name, records); len(brokers) > 0 {
			return brokers, nil
		}
		if failed, is := errors.AsType[*net.DNSError](err); is && !failed.IsNotFound {
			return nil, fmt.Errorf("%w: %w", ErrNoBrokers, err)
		}
		if err == nil {
			err = fmt.Errorf("%s has no target with a host name and a port", name)
		}
		none = append(none, err.Error())
	}
	return nil, fmt.Errorf("%w: %s", ErrNoBrokers, strings.Join(none, "; "))
}

// usable returns the brokers of records, whose order it changes. RFC 2782 forbids aliases as targets, but usable allows
// them, because they work when dialed.
func (cfg Config) usable(name string, records []*net.SRV) (brokers []Broker) {
	scheme := "nats"
	if cfg.Secure {
		scheme = "tls"
	}
	order(records)
	for _, r := range records {
		target, err := wire.ParseName(r.Target)
		b := newBroker(scheme, string(target), int(r.Port), name)
		// A repeated target counts once, with its best priority.
		if err == nil && r.Port > 0 && len(brokers) < maxBrokers && !slices.Contains(brokers, b) {
			brokers = append(brokers, b)
		}
	}
	return brokers
}

// order sorts by priority, then at random by weight, as RFC 2782 wants it. Of exponentially distributed times with the
// weights as rates, each is the first with the chance of its weight. Records without weights are spread too.
func order(records []*net.SRV) {
	times := make(map[*net.SRV]float64, len(records))
	for _, r := range records {
		times[r] = rand.ExpFloat64() / max(float64(r.Weight), 0.1) //nolint:gosec // spreads load, hides nothing
	}
	slices.SortFunc(records, func(a, b *net.SRV) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(times[a], times[b]))
	})
}

func newBroker(scheme, host string, port int, source string) Broker {
	return Broker{
		URL:    scheme + "://" + net.JoinHostPort(host, strconv.Itoa(port)),
		Host:   host,
		Source: source,
	}
}
