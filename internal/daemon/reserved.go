package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"muster/internal/discover"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/fleet"
)

// Enrollment waits for a lookup, so it is short and cached.
const (
	targetsFresh  = 5 * time.Minute
	targetsRetry  = 30 * time.Second
	targetsWait   = 2 * time.Second
	maxSRVDomains = 256
)

// reserved judges the names and addresses of nodes: none may have those of brokers, provisioners or the API. Agents
// accept only brokers' certificates, but other clients of a broker or of the API may look at names alone.
type reserved struct {
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

func newReserved(cfg Config, shown *api, opts Options) (*reserved, error) {
	r := &reserved{
		names:    make(map[string]string),
		resolver: opts.Resolver,
		log:      opts.Log,
		now:      opts.Now,
		targets:  make(map[string]srvTargets),
	}
	add := func(whose string, hosts ...string) {
		for _, h := range hosts {
			r.names[canonical(h)] = whose
		}
	}
	add("the API", cfg.API.Names...)
	add("the API", cfg.API.Addresses...)
	if shown != nil && shown.own == nil {
		add("the API", shown.hosts()...)
	}
	add("the broker", cfg.Broker.Names...)
	add("the broker", cfg.Broker.Addresses...)
	for broker := range strings.SplitSeq(cfg.Broker.URL, ",") {
		add("the broker", hostOf(broker))
	}
	add("this provisioner", cfg.Name)
	for _, p := range cfg.Reserved {
		pattern, err := wire.ParsePattern(p)
		if err != nil {
			return nil, err
		}
		r.patterns = append(r.patterns, pattern)
	}
	return r, nil
}

// check judges a host name or an IP address; token may be nil.
func (r *reserved) check(host string, token *jwt.Verified) error {
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
		if hostOf(u) == host {
			return fmt.Errorf("%s is a broker in the token's URLs", host)
		}
	}
	if token.SRVDomain != "" && r.hosts(token.SRVDomain)[host] {
		return fmt.Errorf("%s is a target of the SRV records of %s", host, token.SRVDomain)
	}
	return nil
}

func (r *reserved) checkName(id wire.Identity) error {
	for _, p := range r.patterns {
		if p.Match(id) {
			return fmt.Errorf("%s is reserved by the pattern %s", id, p)
		}
	}
	return wire.CheckReserved(id)
}

// setPeers replaces the names of the other provisioners and of the external brokers.
func (r *reserved) setPeers(all []*fleet.HeardComponent, brokers []string) {
	peers := make(map[string]bool)
	for _, c := range all {
		for _, host := range c.Reserved {
			peers[host] = true
		}
	}
	for _, b := range brokers {
		peers[hostOf(b)] = true
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

func hostOf(broker string) string {
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
func (r *reserved) hosts(domain string) map[string]bool {
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
