package broker_test

import (
	"context"
	"crypto/x509"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/seal"
	"muster/internal/wire"
	"muster/provisioner/broker"
)

// token is as long as that of a fleet, signed with RSA-4096.
var fleetToken = "eyJ" + strings.Repeat("x", 1100) + "." + strings.Repeat("y", 683)

// BenchmarkConnect has another process connect and go, one iteration for each,
// 32 at a time. It reports what the broker's process uses: server-us/op.
func BenchmarkConnect(b *testing.B) {
	for _, kind := range connections {
		b.Run(kind.name, func(b *testing.B) {
			s := benchSite(b)
			o := s.order()
			kind.edit(b, s, o)
			o.Connections, o.Concurrency = b.N, 32
			s.measure(b, o)
		})
	}
}

// BenchmarkConnectAndAsk has each connection also send one request on each of
// the two subjects of enrollment, with inflight others' waiting for a reply that
// does not come meanwhile.
func BenchmarkConnectAndAsk(b *testing.B) {
	for _, inflight := range []int{0, 500} {
		for _, wildcard := range []bool{false, true} {
			b.Run(fmt.Sprintf("inflight=%d/wildcard=%v", inflight, wildcard), func(b *testing.B) {
				s := benchSite(b)
				s.answerFrom(b, inflight)
				wait := func(n int) {
					for i := 0; i < n; i += 2 {
						conn, _ := s.client(b, nats.Token(fleetToken))
						for range 2 {
							if err := conn.PublishRequest(wire.SubjectEnroll, conn.NewInbox(), []byte("x")); err != nil {
								b.Fatal(err)
							}
						}
						if err := conn.Flush(); err != nil {
							b.Fatal(err)
						}
					}
				}
				wait(inflight)
				o := s.order()
				o.Requests, o.Wildcard = []string{wire.SubjectEnroll, wire.SubjectApplied}, wildcard
				o.Connections, o.Concurrency = b.N, 32
				s.measure(b, o)
			})
		}
	}
}

// answerFrom answers all requests but the first n.
func (s *site) answerFrom(tb testing.TB, n int) {
	tb.Helper()
	seen := 0
	nc := s.muster(tb)
	for _, subject := range []string{wire.SubjectEnroll, wire.SubjectApplied} {
		if _, err := nc.QueueSubscribe(subject, wire.QueueProvisioners, func(m *nats.Msg) {
			if m.Subject == wire.SubjectEnroll {
				if seen++; seen <= n {
					return
				}
			}
			if err := m.Respond(reply); err != nil {
				tb.Error(err)
			}
		}); err != nil {
			tb.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil {
		tb.Fatal(err)
	}
}

// reply is as long as a certificate with its chain and configuration.
var reply = []byte(strings.Repeat("r", 4000))

// connections are the kinds of connections that there are.
var connections = []struct {
	name string
	edit func(tb testing.TB, s *site, o *order)
}{
	{"plain", func(testing.TB, *site, *order) {}},
	{"sealed", func(_ testing.TB, s *site, o *order) { o.Seal = s.seal.Public().String() }},
	{"tls", func(_ testing.TB, _ *site, o *order) { o.TLS = true }},
	{"mutual", func(tb testing.TB, s *site, o *order) { s.mutually(tb, o, "web1.example.net") }},
}

// mutually has the connections of an order present a certificate of a node.
func (s *site) mutually(tb testing.TB, o *order, id string) {
	tb.Helper()
	cert := s.ca.issue(tb, wire.RoleNode, id)
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		tb.Fatal(err)
	}
	o.TLS, o.Token, o.Certificate, o.Key = true, "", cert.Certificate, key
}

// BenchmarkHeld has another process keep connections over mutual TLS, one
// iteration for each (-benchtime 10000x), and reports what the broker's process
// holds for each when nothing happens.
func BenchmarkHeld(b *testing.B) {
	s := benchSite(b)
	o := s.order()
	s.mutually(b, o, "web1.example.net")
	o.Connections, o.Concurrency, o.Hold = b.N, 32, true
	before := held()
	wait, stop := driver(b, o)
	wait()
	after := held()
	stop()
	per := func(before, after uint64) float64 { return (float64(after) - float64(before)) / float64(b.N) }
	b.ReportMetric(per(before.HeapAlloc, after.HeapAlloc), "heap-B/conn")
	b.ReportMetric(per(before.StackInuse, after.StackInuse), "stack-B/conn")
}

// held is what this process uses after a collection.
func held() runtime.MemStats {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what the first has found to be finalized
	runtime.ReadMemStats(&m)
	return m
}

// BenchmarkStorm has all connections made at once, one iteration for each
// (-benchtime 8000x), by nodes with the patience of the agent, and reports how
// often each tried again and what it took in all.
func BenchmarkStorm(b *testing.B) {
	for _, kind := range connections {
		b.Run(kind.name, func(b *testing.B) {
			s := benchSite(b)
			o := s.order()
			kind.edit(b, s, o)
			o.Connections, o.Concurrency, o.Hold, o.Patience = b.N, b.N, true, 5*time.Second
			start, began := cpuTime(b), time.Now()
			wait, stop := driver(b, o)
			again := wait()
			b.ReportMetric(time.Since(began).Seconds(), "s-in-all")
			b.ReportMetric(float64((cpuTime(b)-start).Microseconds())/float64(b.N), "server-us/op")
			b.ReportMetric(float64(again)/float64(b.N), "again/op")
			stop()
		})
	}
}

// BenchmarkRecheck looks at one node's connection in a fleet of 5,000.
func BenchmarkRecheck(b *testing.B) {
	s := benchSite(b)
	o := s.order()
	s.mutually(b, o, "web1.example.net")
	o.Connections, o.Concurrency, o.Hold = 5000, 32, true
	wait, stop := driver(b, o)
	wait()
	b.ResetTimer()
	for b.Loop() {
		if _, err := s.Recheck(b.Context(), "web2.example.net"); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	stop()
}

// benchSite starts a broker that opens sealed tokens as the provisioner does.
func benchSite(b *testing.B) *site {
	b.Helper()
	key, err := seal.GenerateKey()
	if err != nil {
		b.Fatal(err)
	}
	opener, err := seal.NewOpener(key)
	if err != nil {
		b.Fatal(err)
	}
	s := newSite(b, func(c *broker.Config) {
		c.Log = nil
		c.MaxPerNode = broker.DefaultMaxConnections // one certificate is enough
		c.Gate.VerifyToken = func(p broker.Presented) (broker.Token, error) {
			text := p.Token
			if seal.IsSealedToken(string(p.Token)) {
				var err error
				if text, err = opener.OpenToken(seal.Presented{Token: string(p.Token), Name: p.Nkey, Signature: p.Signature, Nonce: p.Nonce}); err != nil {
					return broker.Token{}, err
				}
			}
			if string(text) != fleetToken {
				return broker.Token{}, errToken
			}
			return broker.Token{}, nil
		}
		c.Gate.LiveNode = func(context.Context, wire.Identity) ([]string, error) { return nil, nil }
	})
	s.seal = key
	return s
}

// order is one for plain connections.
func (s *site) order() *order {
	return &order{Address: strings.TrimPrefix(s.URL(), "nats://"), Token: fleetToken, Roots: s.ca.cert.Raw}
}

// measure has a driver carry out an order and reports what that costs us.
func (s *site) measure(b *testing.B, o *order) {
	b.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	b.ResetTimer()
	start := cpuTime(b)
	wait, stop := driver(b, o)
	wait()
	used := cpuTime(b) - start
	b.StopTimer()
	runtime.ReadMemStats(&after)
	stop()
	b.ReportMetric(float64(used.Microseconds())/float64(o.Connections), "server-us/op")
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/float64(o.Connections), "server-allocs/op")
	b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/float64(o.Connections), "server-B/op")
}
