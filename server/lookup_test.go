package server_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"muster/server"
)

// names makes the agent look up names at a name server of the test's, which answers a
// question for the addresses of broker1 with those given once it has been asked so often,
// and so long after it was.
func names(t *testing.T, cfg *server.Config, silences int, slow time.Duration, addresses ...string) {
	t.Helper()
	var mu sync.Mutex
	asked := map[string]int{}
	nameServer(t, cfg, slow, addresses, func(q dns.Question) bool {
		mu.Lock()
		defer mu.Unlock()
		asked[q.String()]++
		return asked[q.String()]%(silences+1) == 0
	})
}

// namesBut is names, of a name server that never answers questions of a type.
func namesBut(t *testing.T, cfg *server.Config, qtype uint16, addresses ...string) {
	t.Helper()
	nameServer(t, cfg, 0, addresses, func(q dns.Question) bool { return q.Qtype != qtype })
}

func nameServer(t *testing.T, cfg *server.Config, slow time.Duration, addresses []string, answers func(dns.Question) bool) {
	t.Helper()
	answer := func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		question := q.Question[0]
		if !answers(question) {
			return
		}
		if question.Qtype == dns.TypeA && strings.HasPrefix(question.Name, "broker1.") {
			for _, a := range addresses {
				m.Answer = append(m.Answer, &dns.A{Hdr: dns.RR_Header{Name: question.Name, Rrtype: dns.TypeA, Class: dns.ClassINET}, A: net.ParseIP(a)})
			}
		}
		select {
		case <-time.After(slow):
			_ = w.WriteMsg(m) // whoever asked may have gone
		case <-t.Context().Done():
		}
	}
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ready := make(chan struct{})
	s := &dns.Server{PacketConn: pc, Handler: dns.HandlerFunc(answer), NotifyStartedFunc: func() { close(ready) }}
	go func() { _ = s.ActivateAndServe() }() // ends with Shutdown
	<-ready
	t.Cleanup(func() { _ = s.Shutdown() })
	cfg.SetResolver(&net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", pc.LocalAddr().String())
	}})
}

// TestADeadNameServerLeavesTimeToConnect has the first of the machine's name servers be
// dead, on which 5 s are spent, and the next one take its time: by then a bound on the
// whole connection would be over, each time.
func TestADeadNameServerLeavesTimeToConnect(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	cfg := f.node("web1.example.net")
	c := f.claims()
	c.Brokers = "broker1.example.net:" + itoa(f.port)
	writeToken(t, cfg.TokenFile, c)
	names(t, &cfg, 1, 2*time.Second, "127.0.0.1")
	f.run(cfg).await(server.EventConfirmed, 1)
	if n := f.countLog("enrollment failed"); n > 0 {
		t.Errorf("failed before:\n%s", f.log.String())
	}
}

// deadAddress has nobody answer at 127.0.0.n.
func deadAddress(t *testing.T, n byte, port int) (address string) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	dead := &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, n}}
	if err := unix.Bind(fd, dead); err != nil {
		t.Skip(err) // somebody else has the port at that address
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	address = net.IP(dead.Addr[:]).String()
	for full := false; !full; { // then the kernel drops whoever comes
		conn, err := net.DialTimeout("tcp", net.JoinHostPort(address, itoa(port)), 500*time.Millisecond)
		if full = err != nil; !full {
			t.Cleanup(func() { _ = conn.Close() })
		}
	}
	return address
}

// TestDeadAddressesOfABrokerArePassedOver has a broker's name lead to addresses at which
// nobody answers before the one that does: to one, and to six, as those of a cluster by IPv6
// on a network that has none, which are always the first.
func TestDeadAddressesOfABrokerArePassedOver(t *testing.T) {
	t.Parallel()
	for name, dead := range map[string]byte{"one": 1, "six": 6} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			cfg := f.node("web1.example.net")
			var addresses []string
			for n := range dead {
				addresses = append(addresses, deadAddress(t, 2+n, f.port))
			}
			c := f.claims()
			c.Brokers = "broker1.example.net:" + itoa(f.port)
			writeToken(t, cfg.TokenFile, c)
			names(t, &cfg, 0, 0, append(addresses, "127.0.0.1")...)
			f.run(cfg).await(server.EventConfirmed, 1)
			if n := f.countLog("enrollment failed"); n > 0 {
				t.Errorf("failed before:\n%s", f.log.String())
			}
		})
	}
}

// TestANameServerThatPassesOverAKindOfAddress has the machine's name servers never answer
// questions for addresses of IPv6, as some do, and some firewalls. Each would be waited for
// twice, for 5 s: with two of them until nothing is left of the time for a lookup.
func TestANameServerThatPassesOverAKindOfAddress(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	cfg := f.node("web1.example.net")
	c := f.claims()
	c.Brokers = "broker1.example.net:" + itoa(f.port)
	writeToken(t, cfg.TokenFile, c)
	namesBut(t, &cfg, dns.TypeAAAA, "127.0.0.1")
	e := f.run(cfg).await(server.EventConfirmed, 1)
	if n := f.countLog("enrollment failed"); n > 0 || e.Elapsed >= 10*time.Second {
		t.Errorf("it took %v, and %d attempts:\n%s", e.Elapsed, n+1, f.log.String())
	}
}
