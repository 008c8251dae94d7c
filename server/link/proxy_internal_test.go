package link

import (
	"strings"
	"testing"

	"muster/internal/discover"
)

// What goes through a proxy, and through which: the settings are asked in their
// order, and only for WebSocket. Not parallel: it sets the environment.
func TestProxyFor(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://user:hunter2@env.example.net:3128")
	t.Setenv("HTTP_PROXY", "http://plain.example.net")
	t.Setenv("NO_PROXY", "near.example.net")
	tests := map[string]struct {
		config, conf, broker string
		want                 string // host of the proxy, "" for none
		err                  bool
	}{
		"wss by the environment":     {broker: "wss://far.example.net:443", want: "env.example.net:3128"},
		"ws by the environment":      {broker: "ws://far.example.net:80", want: "plain.example.net:80"},
		"near":                       {broker: "wss://near.example.net:443"},
		"not WebSocket":              {config: "http://config.example.net:1", broker: "tls://far.example.net:4222"},
		"Config comes first":         {config: "http://config.example.net:1", conf: "http://conf.example.net:2", broker: "wss://near.example.net:443", want: "config.example.net:1"},
		"then server.conf":           {conf: "http://conf.example.net:2", broker: "wss://far.example.net:443", want: "conf.example.net:2"},
		"none, says server.conf":     {conf: "none", broker: "wss://far.example.net:443"},
		"none, says Config":          {config: "none", conf: "http://conf.example.net:2", broker: "wss://far.example.net:443"},
		"of a kind that we have not": {conf: "socks5://user:hunter2@conf.example.net:2", broker: "wss://far.example.net:443", err: true},
		"no URL":                     {conf: "http://user:hunter2@%zz", broker: "wss://far.example.net:443", err: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := New(Config{Proxy: tt.config}).proxyFor(discover.Broker{URL: tt.broker}, tt.conf)
			switch {
			case (err != nil) != tt.err:
				t.Fatalf("proxyFor: %v", err)
			case err != nil:
				if strings.Contains(err.Error(), "hunter2") {
					t.Errorf("the error holds the password: %v", err)
				}
			case got == nil && tt.want != "", got != nil && got.Host != tt.want:
				t.Errorf("proxy %v, want %q", got, tt.want)
			}
		})
	}
}
