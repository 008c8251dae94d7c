package discover

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A Resolver finds brokers. It is safe for concurrent use.
type Resolver struct {
	static []Broker // set by New, then read-only; nil with a domain
	domain string   // set by New
	scheme string   // set by New; of brokers out of DNS
	dns    client   // set by New
	now    func() time.Time

	mu    sync.Mutex // guards what follows
	rand  func(n int64) int64
	cache cached
}

// Brokers returns the brokers in the order to try, at least one. With URLs that
// is their order; with a domain it is that of RFC 2782, drawn anew by each
// call, so that many nodes spread by the weights. Answers are kept as long as
// their TTL says. It may block until every name server has been asked in vain,
// or ctx is done. The error wraps [ErrNoBrokers], [ErrNotOffered] or
// [ErrLookup] and says who was asked for what.
func (r *Resolver) Brokers(ctx context.Context) ([]Broker, error) {
	if r.domain == "" {
		return slices.Clone(r.static), nil
	}
	name, records, err := r.records(ctx)
	if err != nil {
		return nil, fmt.Errorf("brokers of %s: %w", r.domain, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var brokers []Broker
	for _, s := range order(records, r.rand) {
		brokers = append(brokers, newBroker(r.scheme, s.target, int(s.port), name))
	}
	return brokers, nil
}

// newBroker returns the broker at a host that has been validated.
func newBroker(scheme, host string, port int, source string) Broker {
	return Broker{
		URL:  scheme + "://" + net.JoinHostPort(host, strconv.Itoa(port)),
		Host: host, Port: port, Source: source,
	}
}

// records returns the SRV records of the domain, out of the cache or from the
// name servers, and the name that has them.
func (r *Resolver) records(ctx context.Context) (string, []srv, error) {
	r.mu.Lock()
	c := r.cache
	r.mu.Unlock()
	if c.fresh(r.now()) {
		return c.name, c.records, nil
	}
	var none []string
	servers := r.dns.servers()
	for _, service := range services {
		name := service + "." + r.domain
		answer, err := r.dns.lookup(ctx, name, servers)
		if err != nil {
			return "", nil, err
		}
		servers = from(servers, answer.server) // a dead one is not waited for again
		usable, err := answer.usable()
		if errors.Is(err, ErrNoBrokers) {
			none = append(none, err.Error())
			continue
		}
		if err != nil {
			return "", nil, err
		}
		c := cached{name: name, records: usable, since: r.now()}
		c.until = c.since.Add(answer.ttl())
		r.mu.Lock()
		r.cache = c
		r.mu.Unlock()
		return name, usable, nil
	}
	return "", nil, fmt.Errorf("%w: %s", ErrNoBrokers, strings.Join(none, "; "))
}

// cached is the last useful answer.
type cached struct {
	name         string
	records      []srv // not changed once it is here
	since, until time.Time
}

// fresh reports whether the answer may be used at the instant now. A clock that
// went back makes it stale, rather than good for longer than its TTL.
func (c cached) fresh(now time.Time) bool {
	return len(c.records) > 0 && !now.Before(c.since) && now.Before(c.until)
}

// Bounds on how long an answer is kept: the shortest keeps a TTL of 0 from meaning a
// question per connection attempt, the longest keeps a mistake in a zone from
// binding nodes for as long as the field can say (68 years).
const (
	minTTL = time.Second
	maxTTL = time.Hour
)
