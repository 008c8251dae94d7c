package discover_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"

	"muster/internal/discover"
)

func urls(t *testing.T, r *discover.Resolver) []string {
	t.Helper()
	brokers, err := r.Brokers(t.Context())
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
			r := resolver(t, nil, zone(t, tt.zone...))
			brokers, err := r.Brokers(t.Context())
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
	got := urls(t, resolver(t, nil, s))
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
	got := urls(t, resolver(t, nil, zone(t, records...)))
	if len(got) != 64 || got[0] != "nats://broker-199.example.net:4222" {
		t.Errorf("Brokers = %d, the first %q, want the 64 of the best priority", len(got), got[0])
	}
}

func TestNextResolverIsAsked(t *testing.T) {
	t.Parallel()
	good := func(t *testing.T) *nameServer { return zone(t, choriaName+" 60 IN SRV 0 0 4222 a.example.net.") }
	tests := map[string]func(network string, m *dns.Msg) bool{
		"the first never answers": func(string, *dns.Msg) bool { return false },
		"the first fails":         func(_ string, m *dns.Msg) bool { m.Rcode = dns.RcodeServerFailure; return true },
		"the first refuses":       func(_ string, m *dns.Msg) bool { m.Rcode = dns.RcodeRefused; return true },
		"the first answers another question": func(_ string, m *dns.Msg) bool {
			m.Question[0].Name = "www.example.net."
			return true
		},
		"the first sends the question back": func(_ string, m *dns.Msg) bool { m.Response = false; return true },
		"the first truncates even over TCP": func(_ string, m *dns.Msg) bool { m.Truncated = true; return true },
	}
	for name, handle := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := resolver(t, func(c *discover.Config) { c.Timeout = 300 * time.Millisecond }, serve(t, handle), good(t))
			if got := urls(t, r); len(got) != 1 || got[0] != "nats://a.example.net:4222" {
				t.Errorf("Brokers = %q, want those of the second resolver", got)
			}
		})
	}
}

// The domain has only the second service name.
func TestDeadResolverIsWaitedForOnce(t *testing.T) {
	t.Parallel()
	silent := serve(t, func(string, *dns.Msg) bool { return false })
	good := zone(t, musterName+" 60 IN SRV 0 0 4222 a.example.net.")
	r := resolver(t, func(c *discover.Config) { c.Timeout = 500 * time.Millisecond }, silent, good)
	if got := urls(t, r); len(got) != 1 || got[0] != "nats://a.example.net:4222" {
		t.Errorf("Brokers = %q, want those of the second resolver", got)
	}
	if first, second := silent.count("udp", choriaName), silent.count("udp", musterName); first != 1 || second != 0 {
		t.Errorf("the dead one was asked for %d and %d names, want the first alone", first, second)
	}
}

func TestSilentServersAreAnError(t *testing.T) {
	t.Parallel()
	silent := serve(t, func(string, *dns.Msg) bool { return false })
	failing := serve(t, func(_ string, m *dns.Msg) bool { m.Rcode = dns.RcodeServerFailure; return true })
	r := resolver(t, func(c *discover.Config) { c.Timeout = 500 * time.Millisecond }, silent, failing)
	_, err := r.Brokers(t.Context())
	if !errors.Is(err, discover.ErrLookup) {
		t.Fatalf("Brokers error = %v, want %v", err, discover.ErrLookup)
	}
	for _, part := range []string{"_choria-provisioner._tcp.example.net", silent.addr + ": no answer",
		failing.addr + ": answered SERVFAIL"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not say %q", err, part)
		}
	}
	if silent.count("udp", choriaName) != 2 || failing.count("udp", choriaName) != 2 {
		t.Errorf("asked %d and %d times, want each resolver twice", silent.count("udp", choriaName),
			failing.count("udp", choriaName))
	}
	if failing.count("udp", musterName) != 0 {
		t.Error("asked for the second name although nothing is known of the first")
	}
}

func TestCancellationEndsALookup(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("shutting down")
	// The server cancels when it gets the query, and never answers.
	s := serve(t, func(string, *dns.Msg) bool { cancel(gone); return false })
	r := resolver(t, func(c *discover.Config) { c.Timeout = time.Hour }, s)
	if _, err := r.Brokers(ctx); !errors.Is(err, discover.ErrLookup) || !errors.Is(err, gone) {
		t.Errorf("Brokers error = %v, want %v and its cause", err, discover.ErrLookup)
	}
}

func TestRecordsOfOtherNamesAreIgnored(t *testing.T) {
	t.Parallel()
	record := func(text string) dns.RR {
		rr, err := dns.NewRR(text)
		if err != nil {
			t.Fatal(err)
		}
		return rr
	}
	evil := record("_choria-provisioner._tcp.example.org. 60 IN SRV 0 0 4222 evil.example.org.")
	tests := map[string]struct {
		answer []dns.RR
		want   []string
	}{
		"beside ours": {
			[]dns.RR{evil, record(choriaName + " 60 IN SRV 0 0 4222 a.example.net.")},
			[]string{"nats://a.example.net:4222"},
		},
		"by an alias": {
			[]dns.RR{record(choriaName + " 60 IN CNAME srv.example.com."), evil,
				record("SRV.example.com. 60 IN SRV 0 0 4222 b.example.net.")},
			[]string{"nats://b.example.net:4222"},
		},
		"alone":                    {[]dns.RR{evil}, nil},
		"an alias that goes round": {[]dns.RR{record(choriaName + " 60 IN CNAME " + choriaName)}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, func(_ string, m *dns.Msg) bool {
				if m.Question[0].Name == choriaName {
					m.Answer = tt.answer
				}
				return true
			})
			r := resolver(t, nil, s)
			if tt.want == nil {
				if got, err := r.Brokers(t.Context()); !errors.Is(err, discover.ErrNoBrokers) {
					t.Errorf("Brokers = %v, %v, want %v", got, err, discover.ErrNoBrokers)
				}
				return
			}
			if diff := cmp.Diff(tt.want, urls(t, r)); diff != "" {
				t.Errorf("Brokers (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNameServersOfTheMachine(t *testing.T) {
	t.Parallel()
	// There is no server on port 53 of this loopback address. The error names the server, so the file was read for
	// this lookup.
	const server = "127.83.7.9"
	conf := filepath.Join(t.TempDir(), "resolv.conf")
	r := resolver(t, func(c *discover.Config) { c.ResolvConf, c.Timeout = conf, 300*time.Millisecond })
	if err := os.WriteFile(conf, []byte("nameserver "+server+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Brokers(t.Context()); !errors.Is(err, discover.ErrLookup) ||
		!strings.Contains(err.Error(), server+":53") {
		t.Errorf("Brokers error = %v, want %v about %s:53", err, discover.ErrLookup, server)
	}
}

func TestNewRefuses(t *testing.T) {
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
			r, err := discover.New(tt.cfg)
			if err == nil || r != nil {
				t.Fatalf("New = %v, %v, want an error alone", r, err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
		})
	}
}
