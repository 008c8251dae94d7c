package daemon_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"muster/internal/conffile"
	"muster/internal/daemon"
	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/jwt"
)

// A zone is a DNS server on loopback with one SRV record per target. Without targets it answers SERVFAIL.
type zone struct {
	at      *net.Resolver
	targets atomic.Pointer[[]string]
	asked   atomic.Int64
}

func (z *zone) set(targets ...string) { z.targets.Store(&targets) }

func serveZone(t *testing.T, service string, targets ...string) *zone {
	t.Helper()
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	z := &zone{at: &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, packets.LocalAddr().String())
	}}}
	z.set(targets...)
	started, done := make(chan struct{}), make(chan error, 1)
	s := &dns.Server{PacketConn: packets, NotifyStartedFunc: func() { close(started) }}
	s.Handler = dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		z.asked.Add(1)
		m := new(dns.Msg).SetReply(q)
		targets := *z.targets.Load()
		switch {
		case len(targets) == 0:
			m.Rcode = dns.RcodeServerFailure
		case !strings.HasPrefix(q.Question[0].Name, service+"."):
			m.Rcode = dns.RcodeNameError
		}
		for _, target := range targets {
			if m.Rcode == dns.RcodeSuccess {
				m.Answer = append(m.Answer, &dns.SRV{
					Hdr: dns.RR_Header{
						Name:   q.Question[0].Name,
						Rrtype: dns.TypeSRV,
						Class:  dns.ClassINET,
						Ttl:    1,
					}, Port: 4222, Target: target,
				})
			}
		}
		_ = w.WriteMsg(m) // the client may have gone
	})
	go func() { done <- s.ActivateAndServe() }()
	select {
	case <-started:
	case err := <-done:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.Shutdown()
		<-done
	})
	return z
}

// named returns a node whose token has a domain instead of URLs.
func named(t *testing.T, f *testbed.Fleet, identity, domain string) *simnode.Node {
	t.Helper()
	n, err := simnode.New(identity, f.Token(func(c *jwt.Claims) { c.Brokers, c.SRVDomain = "", domain }))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestTargetsOfATokensDomainAreReserved(t *testing.T) {
	t.Parallel()
	for _, service := range []string{"_choria-provisioner._tcp.example.net", "_muster-provisioner._tcp.example.net"} {
		t.Run(service, func(t *testing.T) {
			t.Parallel()
			z := serveZone(t, service, "nats1.example.net.", "NATS2.Example.NET.")
			f := testbed.New(t, testbed.Options{Resolver: z.at})
			for _, name := range []string{"nats1.example.net", "nats2.example.net"} {
				if got := f.Refused(named(t, f, name, "example.net")); got != wire.CodeIdentityReserved {
					t.Errorf("%s is refused as %s, want %s", name, got, wire.CodeIdentityReserved)
				}
			}
			f.Enroll(named(t, f, "web1.example.net", "example.net"))
			f.Enroll(f.Node("nats2.example.net")) // a token with URLs does not lead there
			asked := z.asked.Load()
			for i := range 5 {
				f.Enroll(named(t, f, fmt.Sprintf("db%d.example.net", i), "example.net"))
			}
			if got := z.asked.Load(); got != asked {
				t.Errorf("asked %d times for the next five", got-asked)
			}
			f.Check()
		})
	}
}

// TestReservedTargetsFollowTheRecords: if the name server fails, the last targets stay reserved.
func TestReservedTargetsFollowTheRecords(t *testing.T) {
	t.Parallel()
	z := serveZone(t, "_choria-provisioner._tcp.example.net", "nats1.example.net.")
	f := testbed.New(t, testbed.Options{Resolver: z.at})
	reserved := func(when, name string, want bool) {
		t.Helper()
		r := f.Ask(named(t, f, name, "example.net"))
		if got := r.Refusal != nil && r.Refusal.Code == wire.CodeIdentityReserved; got != want || !want &&
			r.Enrolled == nil {
			t.Errorf("%s %s: %+v, want reserved %v", name, when, r.Refusal, want)
		}
	}
	reserved("at first", "nats1.example.net", true)
	z.set("nats2.example.net.")
	f.Clock.Advance(6 * time.Minute)
	reserved("after a change", "nats2.example.net", true)
	reserved("after a change", "nats1.example.net", false)
	z.set() // fails from now on
	f.Clock.Advance(6 * time.Minute)
	reserved("while DNS fails", "nats2.example.net", true)
	reserved("while DNS fails", "web1.example.net", false)
	if !strings.Contains(f.Log(), "not reserved") {
		t.Error("nothing was logged of the failure")
	}
	z.set("nats3.example.net.")
	f.Clock.Advance(time.Minute)
	reserved("once DNS is back", "nats3.example.net", true)
	f.Check()
}

// TestReservedNamesAreRefused has a row per source of reserved names, and free names beside them.
func TestReservedNamesAreRefused(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Edit: func(c *daemon.Config) {
		c.Broker.Names = append(c.Broker.Names, "nats.fleet.test")
		c.Reserved = []string{"*.privileged.example.net", "root.example.net"}
	}})
	tests := map[string]struct {
		identity, urls string
		free           bool
	}{
		"the provisioner":                 {identity: "broker.fleet.test"},
		"the broker":                      {identity: "localhost"},
		"its second name":                 {identity: "nats.fleet.test"},
		"a pattern":                       {identity: "a.privileged.example.net"},
		"a name":                          {identity: "root.example.net"},
		"a URL":                           {identity: "b1.example.net", urls: "nats://b1.example.net:4222"},
		"a URL in other letters":          {identity: "b1.example.net", urls: "NATS://B1.Example.NET:4222"},
		"a URL with a dot at the end":     {identity: "b1.example.net", urls: "b1.example.net.:4222"},
		"a host without a port":           {identity: "b1.example.net", urls: "b2.example.net,b1.example.net"},
		"a URL with TLS":                  {identity: "b1.example.net", urls: "wss://b1.example.net"},
		"free: deeper than the pattern":   {identity: "a.b.privileged.example.net", free: true},
		"free: the pattern's domain":      {identity: "privileged.example.net", free: true},
		"free: below the broker":          {identity: "a.broker.fleet.test", free: true},
		"free: like a URL, but not it":    {identity: "b1.example.net", urls: "b1.example.net.evil.test", free: true},
		"free: above the name in the URL": {identity: "example.net", urls: "b1.example.net:4222", free: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			n, err := simnode.New(tt.identity, f.Token(func(c *jwt.Claims) { c.Brokers = or(tt.urls, c.Brokers) }))
			if err != nil {
				t.Fatal(err)
			}
			if tt.free {
				// The key is another row's.
				if r := f.Ask(n); r.Refusal != nil && r.Refusal.Code != wire.CodeApprovalPending {
					t.Errorf("%s is refused as %s", tt.identity, r.Refusal.Code)
				}
				return
			}
			if got := f.Refused(n); got != wire.CodeIdentityReserved {
				t.Errorf("%s is refused as %s, want %s", tt.identity, got, wire.CodeIdentityReserved)
			}
		})
	}
	f.Check()
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func TestSignersAreHeldToTheirLimits(t *testing.T) {
	t.Parallel()
	limits := func(site string, identities ...string) func(*daemon.Config) {
		return func(c *daemon.Config) {
			c.Site = "ams1"
			if site != "" {
				c.Tokens.Signers[0].Sites = []string{site}
			}
			c.Tokens.Signers[0].Identities = identities
		}
	}
	tests := map[string]struct {
		edit func(*daemon.Config)
		want wire.Code // "" is enrolled
	}{
		"none":                {limits(""), ""},
		"this site":           {limits("ams1"), ""},
		"another site":        {limits("fra1"), wire.CodeTokenSite},
		"these names":         {limits("", "db*.example.net", "web*.example.net"), ""},
		"other names":         {limits("", "db*.example.net"), wire.CodeTokenIdentity},
		"this site, not name": {limits("ams1", "web2.example.net"), wire.CodeTokenIdentity},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := testbed.New(t, testbed.Options{Edit: tt.edit})
			n := f.Node("web1.example.net")
			r := f.Ask(n)
			switch {
			case tt.want == "" && r.Enrolled == nil:
				t.Errorf("refused: %s", f.Cause(n.Identity))
			case tt.want != "" && (r.Refusal == nil || r.Refusal.Code != tt.want):
				t.Errorf("reply = %+v, want %s", r, tt.want)
			}
			f.Check()
		})
	}
}

func TestTheConfigurationsLimitsAreInForce(t *testing.T) {
	t.Parallel()
	t.Run("lifetime", func(t *testing.T) {
		t.Parallel()
		f := testbed.New(t, testbed.Options{Edit: func(c *daemon.Config) {
			c.Certificates.Lifetime, c.Certificates.MaxLifetime = conffile.Span(time.Hour), conffile.Span(2*time.Hour)
		}, Policy: `package muster.enroll

default allow := true

certificate := {"ttl": input.facts.ttl} if input.facts.ttl
`})
		n := f.Node("web1.example.net")
		n.Facts = testbed.Facts(t, map[string]string{"ttl": "3h"})
		if got := f.Refused(n); got != wire.CodeCertificateFailed {
			t.Errorf("refused as %s, want %s", got, wire.CodeCertificateFailed)
		}
		n.Facts = nil
		f.Enroll(n)
		if r := f.Record(n.Identity); r.Next.NotAfter.Sub(r.UpdatedAt) > time.Hour {
			t.Errorf("lives from %v until %v", r.UpdatedAt, r.Next.NotAfter)
		}
		f.Check()
	})
	for what, edit := range map[string]func(*daemon.Config){"per token": testbed.Quotas(1, 0),
		"per source": testbed.Quotas(0, 1)} {
		t.Run("quota "+what, func(t *testing.T) {
			t.Parallel()
			f := testbed.New(t, testbed.Options{Edit: edit})
			first := f.Node("web1.example.net")
			f.Enroll(first)
			same, err := simnode.New("web2.example.net", first.Token)
			if err != nil {
				t.Fatal(err)
			}
			if got := f.Refused(same); got != wire.CodeQuotaExceeded {
				t.Errorf("by the same token: refused as %s", got)
			}
			if let := f.Ask(f.Node("web3.example.net")).Enrolled != nil; let != (what == "per token") {
				t.Errorf("by another token: let in %v", let)
			}
			f.Check()
		})
	}
}
