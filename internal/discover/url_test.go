package discover_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/internal/discover"
)

func TestNormalizeURL(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		in     string
		secure bool
		want   string // "" means refused
	}{
		"host":                      {"prov1.example.net", false, "nats://prov1.example.net:4222"},
		"host and port":             {"prov1.example.net:4223", false, "nats://prov1.example.net:4223"},
		"one label":                 {"broker", false, "nats://broker:4222"},
		"scheme":                    {"nats://prov1.example.net:4222", false, "nats://prov1.example.net:4222"},
		"TLS":                       {"tls://prov1.example.net", false, "tls://prov1.example.net:4222"},
		"secure":                    {"prov1.example.net:4222", true, "tls://prov1.example.net:4222"},
		"secure raises nats":        {"nats://prov1.example.net:4222", true, "tls://prov1.example.net:4222"},
		"secure raises ws":          {"ws://prov1.example.net", true, "wss://prov1.example.net:443"},
		"insecure lowers nothing":   {"wss://prov1.example.net", false, "wss://prov1.example.net:443"},
		"web socket":                {"ws://prov1.example.net", false, "ws://prov1.example.net:80"},
		"capitals and trailing dot": {"NATS://Prov1.Example.NET.:4222", false, "nats://prov1.example.net:4222"},
		"trailing slash":            {"nats://prov1.example.net:4222/", false, "nats://prov1.example.net:4222"},
		"blanks around it":          {" prov1.example.net:4222 ", false, "nats://prov1.example.net:4222"},
		"IPv4":                      {"127.0.0.1:4222", false, "nats://127.0.0.1:4222"},
		"IPv4 without port":         {"127.0.0.1", false, "nats://127.0.0.1:4222"},
		"IPv6":                      {"[::1]:4223", false, "nats://[::1]:4223"},
		"IPv6 without port":         {"nats://[2001:DB8:0::1]", false, "nats://[2001:db8::1]:4222"},
		"IPv6 without brackets":     {"::1", false, ""},
		"IPv6 with a zone":          {"[fe80::1%25eth0]:4222", false, ""},
		"brackets around IPv4":      {"[127.0.0.1]:4222", false, ""},
		"brackets around a name":    {"[prov1]:4222", false, ""},
		"empty":                     {"", false, ""},
		"only a port":               {":4222", false, ""},
		"only a scheme":             {"nats://", false, ""},
		"another scheme":            {"http://prov1.example.net", false, ""},
		"credentials":               {"nats://me:hunter2@prov1.example.net", false, ""},
		"path":                      {"nats://prov1.example.net/hunter2", false, ""},
		"query":                     {"nats://prov1.example.net?a=b", false, ""},
		"empty query":               {"nats://prov1.example.net?", false, ""},
		"fragment":                  {"nats://prov1.example.net#", false, ""},
		"port 0":                    {"prov1:0", false, ""},
		"port 65536":                {"prov1:65536", false, ""},
		"port with sign":            {"prov1:+1", false, ""},
		"no port after the colon":   {"prov1:", false, ""},
		"underscore":                {"prov_1:4222", false, ""},
		"an address that is none":   {"256.1.1.1:4222", false, ""},
		"two in one":                {"prov1:4222,prov2:4222", false, ""},
		"line break":                {"prov1\n:4222", false, ""},
		"escaped":                   {"prov%31:4222", false, ""},
		"longer than any host":      {strings.Repeat("a", 400), false, ""},
		"two schemes":               {"nats://nats://prov1", false, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := discover.NormalizeURL(tt.in, tt.secure)
			if got != tt.want || (err == nil) != (tt.want != "") {
				t.Fatalf("NormalizeURL(%q) = %q, %v, want %q", tt.in, got, err, tt.want)
			}
			if err != nil {
				if strings.Contains(tt.in, "@") && strings.Contains(err.Error(), "hunter2") {
					t.Errorf("error %q prints the password", err)
				}
				return
			}
			if again, err := discover.NormalizeURL(got, tt.secure); err != nil || again != got {
				t.Errorf("NormalizeURL(%q) = %q, %v, want it unchanged", got, again, err)
			}
		})
	}
}

func TestStaticBrokersKeepTheirOrder(t *testing.T) {
	t.Parallel()
	cfg := discover.Config{URLs: []string{"prov2.example.net:4223", "tls://prov1.example.net", "[::1]:4222",
		"nats://PROV2.example.net:4223"}}
	want := []discover.Broker{
		{URL: "nats://prov2.example.net:4223", Host: "prov2.example.net", Source: discover.SourceStatic},
		{URL: "tls://prov1.example.net:4222", Host: "prov1.example.net", Source: discover.SourceStatic},
		{URL: "nats://[::1]:4222", Host: "::1", Source: discover.SourceStatic},
	}
	for range 2 { // the first result is the caller's to change
		got, err := cfg.Brokers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("Brokers (-want +got):\n%s", diff)
		}
		clear(got)
	}
}
