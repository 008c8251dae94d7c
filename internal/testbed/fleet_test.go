package testbed_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
)

// Real agents find their broker by SRV records. The provisioner restarts in between; restarted agents return in
// normal mode with the same certificate.
func TestAFleetOfAgents(t *testing.T) {
	t.Parallel()
	zone := &zone{}
	f := testbed.New(t, testbed.Options{Resolver: zone.serve(t)})
	zone.add(t, "_choria-provisioner._tcp.provision.example.net.", f.URL())
	token := f.Token(func(c *jwt.Claims) { c.Brokers, c.SRVDomain = "", "provision.example.net" })
	var agents []*testbed.Agent
	for i := range 20 {
		agents = append(agents, f.Agent(fmt.Sprintf("web%d.example.net", i), token))
	}
	f.WaitProvisioned(agents[:5]...)
	f.Stop()
	f.Start()
	f.WaitProvisioned(agents...)
	f.Check()
	before := map[string]int{}
	connected := func() int { return strings.Count(f.Log(), `"msg":"connected to the fleet"`) }
	seen := connected()
	for _, a := range agents {
		before[a.Identity] = f.Revisions(a.Identity)
		a.Stop()
		a.Start()
	}
	f.Eventually("every agent is back in the fleet", func() bool {
		return connected() >= seen+len(agents)
	})
	for _, a := range agents {
		if got := f.Revisions(a.Identity); got != before[a.Identity] {
			t.Errorf("%s: %d revisions after its restart, %d before: it enrolled again", a.Identity, got,
				before[a.Identity])
		}
	}
	f.Check()
}

// Everything has expired: the node returns with its own key and a new token.
func TestAnAgentEnrollsAgainAfterItsCertificateExpired(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	a := f.Agent("web1.example.net", f.Token(nil))
	f.WaitProvisioned(a)
	first := f.Record(a.Identity).Current
	a.Stop()
	f.Clock.Advance(31 * 24 * time.Hour)
	if err := os.WriteFile(a.Token, []byte(f.Token(nil)), 0o600); err != nil {
		t.Fatal(err)
	}
	a.Start()
	f.Eventually("the node has a new certificate", func() bool {
		r := f.Record(a.Identity)
		return r.Current.Serial != first.Serial && r.Next == nil
	})
	if r := f.Record(a.Identity); r.Decision.Reason != provisioner.ReasonContinue ||
		r.Current.KeyHash != first.KeyHash {
		t.Errorf("record = %+v, want the same key by %s", r, provisioner.ReasonContinue)
	}
}

// provision = true in server.conf: the same key gets the same certificate and the changed configuration.
func TestAnAgentIsReprovisionedOnDemand(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	a := f.Agent("web1.example.net", f.Token(nil))
	f.WaitProvisioned(a)
	first := f.Record(a.Identity).Current
	a.Stop()
	conf := filepath.Join(a.Dir, "server.conf")
	if err := os.WriteFile(conf, []byte("identity = web1.example.net\nprovision = true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	a.Start()
	f.Eventually("server.conf is the pushed one again", func() bool {
		b, err := os.ReadFile(conf)
		return err == nil && !strings.Contains(string(b), "provision = true")
	})
	f.WaitProvisioned(a)
	if got := f.Record(a.Identity).Current.Serial; got != first.Serial {
		t.Errorf("certificate %s, want the same as before, %s", got, first.Serial)
	}
	f.Check()
}

// Lifecycle events and registration data reach the provisioners, and only from the node itself.
func TestNodesReportsReachTheProvisioners(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	conn, err := f.Daemon().Connect("listener")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	sub, err := conn.SubscribeSync(wire.AllNodeEvents)
	if err == nil {
		err = conn.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	a := f.Agent("web1.example.net", f.Token(nil))
	seen := map[string]bool{}
	for !seen["startup"] || !seen["provisioned"] {
		m, err := sub.NextMsgWithContext(f.Context())
		if err != nil {
			t.Fatalf("%v after %v", err, seen)
		}
		parts := strings.Split(m.Subject, ".")
		if parts[3] != "web1_example_net" {
			t.Errorf("event on %s", m.Subject)
		}
		seen[parts[4]] = true
	}
	a.Stop()
	for !seen["shutdown"] {
		m, err := sub.NextMsgWithContext(f.Context())
		if err != nil {
			t.Fatalf("%v after %v", err, seen)
		}
		seen[m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]] = true
	}
	f.Check()
}

// zone is a DNS server whose SRV records can change.
type zone struct {
	mux dns.ServeMux
}

// serve starts the server on loopback and returns its address.
func (z *zone) serve(t *testing.T) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	z.mux.HandleFunc(".", func(w dns.ResponseWriter, r *dns.Msg) {
		m := new(dns.Msg)
		_ = w.WriteMsg(m.SetRcode(r, dns.RcodeNameError))
	})
	s := &dns.Server{PacketConn: conn, Handler: &z.mux}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.ActivateAndServe() }()
	t.Cleanup(func() { _ = s.Shutdown(); <-done })
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, conn.LocalAddr().String())
	}}
}

// add answers a name with the broker's port on localhost.
func (z *zone) add(t *testing.T, name, broker string) {
	t.Helper()
	u, err := url.Parse(broker)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	z.mux.HandleFunc(name, func(w dns.ResponseWriter, r *dns.Msg) {
		m := new(dns.Msg)
		m.SetReply(r)
		m.Answer = []dns.RR{&dns.SRV{
			Hdr:    dns.RR_Header{Name: r.Question[0].Name, Rrtype: dns.TypeSRV, Class: dns.ClassINET, Ttl: 1},
			Target: "localhost.", Port: uint16(port),
		}}
		_ = w.WriteMsg(m)
	})
}
