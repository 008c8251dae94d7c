package discover_test

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/miekg/dns"

	"muster/internal/discover"
)

const (
	choriaName = "_choria-provisioner._tcp.example.net."
	musterName = "_muster-provisioner._tcp.example.net."
)

// A nameServer is a DNS server on loopback, UDP and TCP.
type nameServer struct {
	at *net.Resolver

	mu    sync.Mutex
	asked map[string]int // questions by transport and name, such as "udp web."
}

// serve starts a name server that lets handle fill each reply; if handle returns false, it stays silent.
func serve(t testing.TB, handle func(network string, m *dns.Msg) bool) *nameServer {
	t.Helper()
	s := &nameServer{asked: make(map[string]int)}
	packets, listener := listenBoth(t)
	s.at = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, packets.LocalAddr().String())
	}}
	for network, server := range map[string]*dns.Server{"udp": {PacketConn: packets}, "tcp": {Listener: listener}} {
		started := make(chan struct{})
		server.NotifyStartedFunc = func() { close(started) }
		server.Handler = dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
			s.mu.Lock()
			s.asked[network+" "+q.Question[0].Name]++
			s.mu.Unlock()
			m := new(dns.Msg).SetReply(q)
			if handle(network, m) {
				_ = w.WriteMsg(m) // the client may have gone
			}
		})
		done := make(chan error, 1)
		go func() { done <- server.ActivateAndServe() }()
		select {
		case <-started:
		case err := <-done:
			t.Fatalf("name server over %s: %v", network, err)
		}
		t.Cleanup(func() {
			_ = server.Shutdown()
			<-done
		})
	}
	return s
}

func listenBoth(t testing.TB) (net.PacketConn, net.Listener) {
	t.Helper()
	var err error
	for range 20 { // another program may have the TCP port
		var packets net.PacketConn
		if packets, err = net.ListenPacket("udp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		var listener net.Listener
		if listener, err = net.Listen("tcp", packets.LocalAddr().String()); err == nil {
			return packets, listener
		}
		packets.Close()
	}
	t.Fatal(err)
	return nil, nil
}

func (s *nameServer) count(network, name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[network+" "+name]
}

// zone serves records in zone file syntax, truncated over UDP if too long; other names do not exist.
func zone(t testing.TB, records ...string) *nameServer {
	t.Helper()
	byName := make(map[string][]dns.RR)
	for _, text := range records {
		rr, err := dns.NewRR(text)
		if err != nil {
			t.Fatal(err)
		}
		name := dns.CanonicalName(rr.Header().Name)
		byName[name] = append(byName[name], rr)
	}
	return serve(t, func(network string, m *dns.Msg) bool {
		found, ok := byName[dns.CanonicalName(m.Question[0].Name)]
		if !ok {
			m.Rcode = dns.RcodeNameError
		}
		m.Answer = found
		if network == "udp" {
			m.Truncate(dns.MinMsgSize)
		}
		return true
	})
}

func (s *nameServer) config() discover.Config {
	return discover.Config{SRVDomain: "example.net", Resolver: s.at}
}
