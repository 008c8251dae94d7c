package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"sync"
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

// reserved refuses nodes with brokers' names. It is a second defense: a node's certificate never passes as a broker's.
type reserved struct {
	names     map[wire.Identity]string // reason for the log
	patterns  []wire.Pattern
	resolvers []string
	log       *slog.Logger
	now       func() time.Time

	mu      sync.Mutex
	targets map[string]srvTargets // guarded by mu; by domain
}

type srvTargets struct {
	hosts map[string]bool
	again time.Time // next lookup
}

func newReserved(cfg Config, opts Options) (*reserved, error) {
	r := &reserved{
		names:     make(map[wire.Identity]string),
		resolvers: opts.Resolvers,
		log:       opts.Log,
		now:       opts.Now,
		targets:   make(map[string]srvTargets),
	}
	r.names[wire.Identity(cfg.Name)] = "this provisioner"
	for _, n := range cfg.Broker.Names {
		r.names[wire.Identity(n)] = "the broker"
	}
	for _, p := range cfg.Reserved {
		pattern, err := wire.ParsePattern(p)
		if err != nil {
			return nil, err
		}
		r.patterns = append(r.patterns, pattern)
	}
	return r, nil
}

func (r *reserved) check(id wire.Identity, token *jwt.Verified) error {
	if whose, ok := r.names[id]; ok {
		return fmt.Errorf("%s is the name of %s", id, whose)
	}
	for _, p := range r.patterns {
		if p.Match(id) {
			return fmt.Errorf("%s is reserved by the pattern %s", id, p)
		}
	}
	for _, u := range token.URLs() {
		if hostOf(u) == string(id) {
			return fmt.Errorf("%s is a broker in the token's URLs", id)
		}
	}
	if token.SRVDomain != "" && r.hosts(token.SRVDomain)[string(id)] {
		return fmt.Errorf("%s is a target of the SRV records of %s", id, token.SRVDomain)
	}
	return nil
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
	return u.Hostname()
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
	resolver, err := discover.New(discover.Config{SRVDomain: domain, Resolvers: r.resolvers, Timeout: targetsWait})
	if err == nil {
		var brokers []discover.Broker
		brokers, err = resolver.Brokers(ctx)
		for _, b := range brokers {
			hosts[b.Host] = true
		}
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
