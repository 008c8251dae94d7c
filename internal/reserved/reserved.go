// Package reserved refuses nodes the names and addresses of brokers, provisioners and the API. Agents accept only
// brokers' certificates, but other clients may look at names alone.
package reserved

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"muster/internal/discover"
	"muster/internal/wire"
	"muster/jwt"
)

// Enrollment waits for a lookup, so it is short and cached.
const (
	targetsFresh  = 5 * time.Minute
	targetsRetry  = 30 * time.Second
	targetsWait   = 2 * time.Second
	maxSRVDomains = 256
)

// Names are safe for concurrent use after the last [Names.Add].
type Names struct {
	names    map[string]string // hosts and addresses; reason for the log
	patterns []wire.Pattern
	resolver *net.Resolver
	log      *slog.Logger
	now      func() time.Time

	// peers are hosts and addresses of the other provisioners and of the external brokers, or nil.
	peers atomic.Pointer[map[string]bool]

	mu      sync.Mutex
	targets map[string]srvTargets // guarded by mu; by domain
}

type srvTargets struct {
	hosts map[string]bool
	again time.Time // next lookup
}

// New reserves the patterns.
func New(patterns []string, resolver *net.Resolver, log *slog.Logger, now func() time.Time) (*Names, error) {
	r := &Names{
		names:    make(map[string]string),
		resolver: resolver,
		log:      log,
		now:      now,
		targets:  make(map[string]srvTargets),
	}
	for _, p := range patterns {
		pattern, err := wire.ParsePattern(p)
		if err != nil {
			return nil, err
		}
		r.patterns = append(r.patterns, pattern)
	}
	return r, nil
}

// Add reserves hosts; whose is for the log, like "the API".
func (r *Names) Add(whose string, hosts ...string) {
	for _, h := range hosts {
		r.names[canonical(h)] = whose
	}
}

// Hosts returns all that were added.
func (r *Names) Hosts() []string { return slices.Sorted(maps.Keys(r.names)) }

// Check judges a host name or an IP address; token may be nil.
func (r *Names) Check(host string, token *jwt.Verified) error {
	host = canonical(host)
	if whose, ok := r.names[host]; ok {
		return fmt.Errorf("%s is a name or an address of %s", host, whose)
	}
	if peers := r.peers.Load(); peers != nil && (*peers)[host] {
		return fmt.Errorf("%s is a name or an address of a broker or another provisioner", host)
	}
	if net.ParseIP(host) != nil {
		if ownAddress(host) {
			return fmt.Errorf("%s is an address of the provisioner's machine", host)
		}
	} else if err := r.checkName(wire.Identity(host)); err != nil {
		return err
	}
	if token == nil {
		return nil
	}
	for _, u := range token.URLs() {
		if HostOf(u) == host {
			return fmt.Errorf("%s is a broker in the token's URLs", host)
		}
	}
	if token.SRVDomain != "" && r.hosts(token.SRVDomain)[host] {
		return fmt.Errorf("%s is a target of the SRV records of %s", host, token.SRVDomain)
	}
	return nil
}

func (r *Names) checkName(id wire.Identity) error {
	for _, p := range r.patterns {
		if p.Match(id) {
			return fmt.Errorf("%s is reserved by the pattern %s", id, p)
		}
	}
	return wire.CheckReserved(id)
}

// SetPeers replaces the hosts of other provisioners and external brokers.
func (r *Names) SetPeers(hosts, brokers []string) {
	peers := make(map[string]bool)
	for _, host := range hosts {
		peers[host] = true
	}
	for _, b := range brokers {
		peers[HostOf(b)] = true
	}
	r.peers.Store(&peers)
}

// ownAddress reports whether this machine has the address; it may change at any time.
func ownAddress(host string) bool {
	own, _ := net.InterfaceAddrs() // without an answer, only configured addresses are reserved
	return slices.ContainsFunc(own, func(a net.Addr) bool {
		n, ok := a.(*net.IPNet)
		return ok && canonical(n.IP.String()) == host
	})
}

// canonical returns an address in the form that all spellings share, and a host name as it is.
func canonical(host string) string {
	if a, err := netip.ParseAddr(host); err == nil {
		return a.Unmap().WithZone("").String()
	}
	return host
}

// HostOf returns the host in the URL of a broker, or "".
func HostOf(broker string) string {
	normal, err := discover.NormalizeURL(broker, false)
	if err != nil {
		return ""
	}
	u, err := url.Parse(normal)
	if err != nil {
		return ""
	}
	return canonical(u.Hostname())
}

// hosts returns the SRV targets of a domain. If the lookup fails, the last ones stay: enrollment must go on without
// DNS.
func (r *Names) hosts(domain string) map[string]bool {
	r.mu.Lock()
	t := r.targets[domain]
	r.mu.Unlock()
	if now := r.now(); now.Before(t.again) && t.again.Sub(now) <= targetsFresh { // else the clock was ahead
		return t.hosts
	}
	ctx, cancel := context.WithTimeout(context.Background(), targetsWait)
	defer cancel()
	hosts := make(map[string]bool)
	brokers, err := discover.Config{SRVDomain: domain, Resolver: r.resolver}.Brokers(ctx)
	for _, b := range brokers {
		hosts[b.Host] = true
	}
	if err != nil {
		r.log.WarnContext(ctx, "SRV lookup failed, its broker names are not reserved", "subject", domain, "err", err)
		t.again = r.now().Add(targetsRetry)
	} else {
		t = srvTargets{hosts, r.now().Add(targetsFresh)}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.targets) >= maxSRVDomains {
		clear(r.targets)
	}
	r.targets[domain] = t
	return t.hosts
}
