package discover_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"

	"muster/internal/discover"
)

func urls(t *testing.T, s *nameServer) []string {
	t.Helper()
	brokers, err := s.config().Brokers(t.Context())
	if err != nil {
		t.Fatalf("Brokers: %v", err)
	}
	var all []string
	for _, b := range brokers {
		all = append(all, b.URL)
	}
	return all
}

func TestBrokersFromDNS(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		zone []string
		want []string // URLs
		err  error
	}{
		"one": {
			zone: []string{choriaName + " 60 IN SRV 10 5 4222 prov1.example.net."},
			want: []string{"nats://prov1.example.net:4222"},
		},
		"by priority": {
			zone: []string{
				choriaName + " 60 IN SRV 30 0 4222 c.example.net.",
				choriaName + " 60 IN SRV 10 0 4223 a.example.net.",
				choriaName + " 60 IN SRV 20 0 4224 b.example.net.",
			},
			want: []string{"nats://a.example.net:4223", "nats://b.example.net:4224", "nats://c.example.net:4222"},
		},
		"in capitals": {
			zone: []string{choriaName + " 60 IN SRV 0 0 4222 Prov1.EXAMPLE.net."},
			want: []string{"nats://prov1.example.net:4222"},
		},
		"in another domain": {
			zone: []string{choriaName + " 60 IN SRV 0 0 4222 prov1.example.org."},
			want: []string{"nats://prov1.example.org:4222"},
		},
		"one listed twice": {
			zone: []string{choriaName + " 60 IN SRV 0 5 4222 a.example.net.",
				choriaName + " 60 IN SRV 0 6 4222 A.example.net."},
			want: []string{"nats://a.example.net:4222"},
		},
		"one listed twice counts by its best priority": { // name servers rotate records
			zone: []string{
				choriaName + " 60 IN SRV 30 0 4222 a.example.net.",
				choriaName + " 60 IN SRV 20 0 4222 b.example.net.",
				choriaName + " 60 IN SRV 10 0 4222 a.example.net.",
			},
			want: []string{"nats://a.example.net:4222", "nats://b.example.net:4222"},
		},
		"only our own name": {
			zone: []string{musterName + " 60 IN SRV 0 0 4222 m.example.net."},
			want: []string{"nats://m.example.net:4222"},
		},
		"our own name, the other without SRV records": {
			zone: []string{choriaName + ` 60 IN TXT "hello"`, musterName + " 60 IN SRV 0 0 4222 m.example.net."},
			want: []string{"nats://m.example.net:4222"},
		},
		"both names: Choria's": {
			zone: []string{choriaName + " 60 IN SRV 0 0 4222 c.example.net.",
				musterName + " 60 IN SRV 0 0 4222 m.example.net."},
			want: []string{"nats://c.example.net:4222"},
		},
		"Choria's is not offered, ours is": {
			zone: []string{choriaName + " 60 IN SRV 0 0 0 .", musterName + " 60 IN SRV 0 0 4222 m.example.net."},
			want: []string{"nats://m.example.net:4222"},
		},
		"a root target among other targets is no target": {
			zone: []string{choriaName + " 60 IN SRV 0 0 0 .", choriaName + " 60 IN SRV 0 0 4222 a.example.net."},
			want: []string{"nats://a.example.net:4222"},
		},
		"an address is no target": {
			zone: []string{choriaName + " 60 IN SRV 0 0 4222 192.0.2.1."},
			err:  discover.ErrNoBrokers,
		},
		"unusable targets are passed over": {
			zone: []string{
				choriaName + " 60 IN SRV 0 0 4222 under_score.example.net.",
				choriaName + " 60 IN SRV 0 0 0 zero.example.net.",
				choriaName + " 60 IN SRV 0 0 4222 a.example.net.",
			},
			want: []string{"nats://a.example.net:4222"},
		},
		"neither name exists": {zone: nil, err: discover.ErrNoBrokers},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			brokers, err := zone(t, tt.zone...).config().Brokers(t.Context())
			if !errors.Is(err, tt.err) {
				t.Fatalf("Brokers error = %v, want %v", err, tt.err)
			}
			var got []string
			for _, b := range brokers {
				got = append(got, b.URL)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Brokers (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTruncatedAnswerIsAskedForOverTCP(t *testing.T) {
	t.Parallel()
	s := serve(t, func(network string, m *dns.Msg) bool {
		for i := range 40 {
			rr, err := dns.NewRR(fmt.Sprintf("%s 60 IN SRV %d 0 4222 broker-%d.example.net.", choriaName, i, i))
			if err != nil {
				t.Error(err)
			}
			m.Answer = append(m.Answer, rr)
		}
		if network == "udp" {
			m.Truncate(dns.MinMsgSize)
		}
		return true
	})
	got := urls(t, s)
	if len(got) != 40 || got[39] != "nats://broker-39.example.net:4222" {
		t.Errorf("Brokers = %d, the last %q, want 40", len(got), got[len(got)-1])
	}
	if s.count("udp", choriaName) != 1 || s.count("tcp", choriaName) != 1 {
		t.Errorf("asked %d times over UDP and %d over TCP, want 1 and 1", s.count("udp", choriaName),
			s.count("tcp", choriaName))
	}
}

func TestAnswerIsBounded(t *testing.T) {
	t.Parallel()
	var records []string
	for i := range 200 {
		records = append(records, fmt.Sprintf("%s 60 IN SRV %d 0 4222 broker-%d.example.net.", choriaName, 200-i, i))
	}
	got := urls(t, zone(t, records...))
	if len(got) != 64 || got[0] != "nats://broker-199.example.net:4222" {
		t.Errorf("Brokers = %d, the first %q, want the 64 of the best priority", len(got), got[0])
	}
}

// Without an answer about the first name, nothing is known of the second.
func TestFailureOfTheNameServerIsAnError(t *testing.T) {
	t.Parallel()
	for name, handle := range map[string]func(network string, m *dns.Msg) bool{
		"fails":                   func(_ string, m *dns.Msg) bool { m.Rcode = dns.RcodeServerFailure; return true },
		"refuses":                 func(_ string, m *dns.Msg) bool { m.Rcode = dns.RcodeRefused; return true },
		"sends the question back": func(_ string, m *dns.Msg) bool { m.Response = false; return true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, handle)
			_, err := s.config().Brokers(t.Context())
			if !errors.Is(err, discover.ErrNoBrokers) || !strings.Contains(err.Error(), strings.TrimSuffix(choriaName, ".")) {
				t.Errorf("Brokers error = %v, want %v about %s", err, discover.ErrNoBrokers, choriaName)
			}
			if s.count("udp", musterName) != 0 {
				t.Error("asked for the second name")
			}
		})
	}
}

func TestCheckRefuses(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		cfg  discover.Config
		want []string // in the error
	}{
		"neither": {discover.Config{}, []string{"want URLs or an SRV domain"}},
		"both":    {discover.Config{URLs: []string{"a:1"}, SRVDomain: "example.net"}, []string{"both"}},
		"everything at once": {
			discover.Config{URLs: []string{"http://a", "b:0"}},
			[]string{`scheme "http"`, `port "0"`},
		},
		"no domain":   {discover.Config{SRVDomain: "_tcp.example.net"}, []string{"SRV domain"}},
		"too long":    {discover.Config{SRVDomain: strings.Repeat("a.", 120) + "example.net"}, []string{"limit"}},
		"an address":  {discover.Config{SRVDomain: "192.0.2.1"}, []string{"SRV domain"}},
		"only a root": {discover.Config{SRVDomain: "."}, []string{"SRV domain"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := tt.cfg.Check()
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
		})
	}
}
