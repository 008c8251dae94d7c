package server_test

import (
	"context"
	"crypto/x509"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"muster/internal/wire"
	"muster/jwt"
	"muster/server"
)

func TestABrokerThatRefusesIsRetried(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		edit   func(*jwt.Claims)
		remedy string // in the log
	}{
		"a token that is good by its looks": {nil, "the broker does not trust the token's signer"},
		"an expired token": {func(c *jwt.Claims) {
			c.ExpiresAt = time.Now().Add(-time.Hour)
		}, "the token expired at"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			f.set(func() { f.admit = func(string, *x509.Certificate) bool { return false } })
			cfg := f.node("web1.example.net")
			c := f.claims()
			if tt.edit != nil {
				tt.edit(&c)
				writeToken(t, cfg.TokenFile, c)
			}
			a := f.run(cfg)
			a.await(server.EventFailed, 3)
			if n := f.countLog("enrollment failed", "Authorization Violation", tt.remedy); n != 1 {
				t.Errorf("logged %d times, want once per change:\n%s", n, f.log.String())
			}
			if expired := f.countLog("token is not valid by this machine's clock") == 1; expired != (tt.edit != nil) {
				t.Errorf("log says expired: %v:\n%s", expired, f.log.String())
			}
			f.set(func() { f.admit = nil })
			a.await(server.EventConfirmed, 1)
		})
	}
}

// zone is a DNS server on loopback with one SRV record that can be changed.
func zone(t *testing.T, name string) (at *net.Resolver, point func(target string, port int)) {
	t.Helper()
	var record atomic.Pointer[dns.SRV]
	mux := dns.NewServeMux()
	mux.HandleFunc(".", func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg)
		m.SetReply(q)
		if r := record.Load(); r != nil && strings.EqualFold(q.Question[0].Name, name) &&
			q.Question[0].Qtype == dns.TypeSRV {
			m.Answer = []dns.RR{r}
		} else {
			m.Rcode = dns.RcodeNameError
		}
		_ = w.WriteMsg(m) // the client may be gone
	})
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ready := make(chan struct{})
	s := &dns.Server{PacketConn: pc, Handler: mux, NotifyStartedFunc: func() { close(ready) }}
	go func() { _ = s.ActivateAndServe() }() // until Shutdown
	<-ready
	t.Cleanup(func() { _ = s.Shutdown() })
	at = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, pc.LocalAddr().String())
	}}
	return at, func(target string, port int) {
		record.Store(&dns.SRV{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeSRV, Class: dns.ClassINET, Ttl: 1},
			Priority: 10, Weight: 5, Port: uint16(port), Target: dns.Fqdn(target)})
	}
}

func TestBrokersAreFoundInDNSAndLookedUpAgain(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	resolver, point := zone(t, "_choria-provisioner._tcp.provision.example.net.")
	cfg := f.node("web1.example.net")
	cfg.Resolver = resolver
	c := f.claims()
	c.Brokers, c.SRVDomain = "", "provision.example.net"
	writeToken(t, cfg.TokenFile, c)
	a := f.run(cfg)
	f.awaitLog("enrollment failed", "no brokers found", "check the SRV records")
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := dead.Addr().(*net.TCPAddr).Port
	if err := dead.Close(); err != nil {
		t.Fatal(err)
	}
	point("localhost", port)
	f.awaitLog("enrollment failed", "connection refused")
	point("localhost", f.port)
	a.await(server.EventConfirmed, 1)
	a.await(server.EventConnected, 1)
}

func TestProvisioningByTLS(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		role   wire.Role // of the broker's certificate
		pin    string    // "ours", "theirs" or none
		refuse string    // expected in the log; empty: provisioned
	}{
		"pinned":     {wire.RoleBroker, "ours", ""},
		"not pinned": {wire.RoleBroker, "", ""},
		"another authority pinned": {wire.RoleBroker, "theirs",
			"does not present the authority that the token pins"},
		"a node that poses as a broker": {wire.RoleNode, "ours", "want a broker"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			f.stop()
			f.serverTLS = f.brokerTLS(tt.role)
			f.start()
			cfg := f.node("web1.example.net")
			c := f.claims()
			c.Secure = true
			c.Brokers = "localhost:" + itoa(f.port)
			pins := map[string]string{"ours": f.authority.Fingerprint(), "theirs": strings.Repeat("ab", 32)}
			if err := c.SetLimits(limits(pins[tt.pin], "")); err != nil {
				t.Fatal(err)
			}
			writeToken(t, cfg.TokenFile, c)
			a := f.run(cfg)
			if tt.refuse != "" {
				f.awaitLog("enrollment failed", tt.refuse)
				if likely := f.countLog("enrollment failed",
					"remedy=\"the token was probably signed with --ca of another authority") == 1; likely != (tt.pin == "theirs") {
					t.Errorf("likely cause comes first: %v; log:\n%s", likely, f.log.String())
				}
				if n := len(f.requests()); n > 0 {
					t.Errorf("%d requests sent, want none", n)
				}
				return
			}
			a.await(server.EventConfirmed, 1)
			if warned := f.countLog("broker is not verified while provisioning") == 1; warned != (tt.pin == "") {
				t.Errorf("warned %v:\n%s", warned, f.log.String())
			}
		})
	}
}

func TestTokensThatCannotBeUsedAreWaitedOut(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		edit func(*jwt.Claims)
		says string
	}{
		"both brokers and a domain": {func(c *jwt.Claims) { c.SRVDomain = "example.net" }, "both broker URLs"},
		"neither":                   {func(c *jwt.Claims) { c.Brokers = "" }, "neither broker URLs"},
		"no shared secret":          {func(c *jwt.Claims) { c.Token = "" }, "no token secret"},
		"another purpose":           {func(c *jwt.Claims) { c.Purpose, c.Subject = "choria_server", "" }, "purpose"},
		"sealed to what is no key": {func(c *jwt.Claims) {
			if err := c.SetLimits(limits("", strings.Repeat("A", 43))); err != nil {
				panic(err)
			}
		}, "not a usable seal key"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			cfg := f.node("web1.example.net")
			cfg.BackoffMin, cfg.BackoffMax = time.Hour, time.Hour // only a change of the file leads to another attempt
			c := f.claims()
			tt.edit(&c)
			writeToken(t, cfg.TokenFile, c)
			a := f.run(cfg)
			a.await(server.EventFailed, 1)
			if n := f.countLog("enrollment failed", tt.says, "remedy="); n != 1 {
				t.Errorf("logged %d times, want once:\n%s", n, f.log.String())
			}
			if n := len(f.requests()); n > 0 {
				t.Errorf("%d requests sent, want none", n)
			}
			writeToken(t, cfg.TokenFile, f.claims())
			a.await(server.EventConfirmed, 1)
		})
	}
}

func TestFactsThatCannotBeSentKeepTheNodeFromAsking(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ text, says, remedy string }{
		"neither":        {"site: [ams\n", "neither JSON nor YAML", "make the file one JSON object"},
		"empty":          {"\n", "empty", "make the file one JSON object"},
		"not an object":  {"[1]", "want an object", "make the file one JSON object"},
		"twice the same": {`{"a":1,"a":2}`, "", "make the file one JSON object"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			cfg := f.node("web1.example.net")
			cfg.BackoffMin, cfg.BackoffMax = time.Hour, time.Hour // only a change of the file leads to another attempt
			c := f.claims()
			c.Facts = filepath.Join(t.TempDir(), "facts.json")
			writeToken(t, cfg.TokenFile, c)
			writeFile(t, c.Facts, tt.text)
			a := f.run(cfg)
			a.await(server.EventFailed, 1)
			if f.countLog("enrollment failed", "facts cannot be sent: "+c.Facts, tt.says, tt.remedy, "retry_in=") != 1 {
				t.Errorf("log:\n%s", f.log.String())
			}
			if n := len(f.requests()); n > 0 {
				t.Errorf("%d requests sent, want none", n)
			}
			writeFile(t, c.Facts, `{"site":"ams"}`)
			a.await(server.EventConfirmed, 1)
			if r := f.requests(); len(r) != 1 || string(r[0].Facts) != `{"site":"ams"}` {
				t.Errorf("%d requests, the first with facts %s", len(r), r[0].Facts)
			}
		})
	}
}

func TestWithoutAFactsFileNoneAreSent(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.set(func() { f.enroll = refuse(wire.CodeDeferred, 0) })
	cfg := f.node("web1.example.net")
	cfg.FactsFile = filepath.Join(t.TempDir(), "facts.json")
	a := f.run(cfg)
	a.await(server.EventRefused, 3)
	if n := f.countLog("facts not sent", "no such file", "facts.json"); n != 1 || f.countLog("facts not sent") != 1 {
		t.Errorf("logged %d times, want once:\n%s", n, f.log.String())
	}
	writeFile(t, cfg.FactsFile, `{"site":"ams"}`)
	f.await("facts", func() bool { r := f.requests(); return string(r[len(r)-1].Facts) == `{"site":"ams"}` })
}
