package discover

import (
	"strings"
	"testing"

	"github.com/miekg/dns"

	"muster/internal/wire"
)

// FuzzAnswer checks that no message panics and that results have hosts with ports, within all bounds.
func FuzzAnswer(f *testing.F) {
	const name = "_choria-provisioner._tcp.example.net"
	for _, zone := range []string{
		"%s 60 IN SRV 10 5 4222 broker1.example.net.\n%s 60 IN SRV 20 0 4222 broker2.example.net.", "%s 0 IN SRV 0 0 0 .", "%s 60 IN SRV 0 0 0 a.b.",
		"%s 60 IN CNAME x.example.net.\nx.example.net. 60 IN SRV 1 1 1 y.example.net.", "%s 60 IN CNAME %s", "%s 4294967295 IN SRV 1 1 1 192.0.2.1.",
	} {
		m := new(dns.Msg)
		m.SetQuestion(dns.Fqdn(name), dns.TypeSRV)
		for line := range strings.Lines(strings.ReplaceAll(zone, "%s", dns.Fqdn(name))) {
			rr, err := dns.NewRR(line)
			if err != nil {
				f.Fatal(err)
			}
			m.Answer = append(m.Answer, rr)
		}
		b, err := m.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m := new(dns.Msg)
		if m.Unpack(b) != nil {
			return
		}
		a := newAnswer(name, "192.0.2.53:53", m)
		records, err := a.usable()
		if err != nil {
			if records != nil {
				t.Fatalf("usable = %v, %v", records, err)
			}
			return
		}
		ordered := order(records, func(n int64) int64 { return n - 1 })
		if len(ordered) != min(len(records), maxRecords) || len(records) < 1 {
			t.Fatalf("%d of %d records", len(ordered), len(records))
		}
		for i, r := range ordered {
			if _, err := wire.ParseIdentity(r.target); err != nil || r.port == 0 {
				t.Fatalf("target %q, port %d: %v", r.target, r.port, err)
			}
			if i > 0 && r.priority < ordered[i-1].priority {
				t.Fatalf("priority %d after %d", r.priority, ordered[i-1].priority)
			}
		}
	})
}
