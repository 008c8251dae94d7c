package testbed_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"muster/internal/daemon"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/jwt"
	"muster/server"
)

// A webProxy is an HTTP proxy as companies have them: it knows its users, and
// connects them to one address only.
type webProxy struct {
	*httptest.Server
	opened  atomic.Int64 // tunnels
	refused atomic.Int64
}

// newWebProxy starts a proxy that lets through to allowed.
func newWebProxy(t *testing.T, allowed func() string) *webProxy {
	t.Helper()
	p := &webProxy{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, ok := (&http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}}).BasicAuth()
		switch {
		case !ok || user != "node" || password != "let-me-out":
			p.refused.Add(1)
			w.Header().Set("Proxy-Authenticate", `Basic realm="out"`)
			w.WriteHeader(http.StatusProxyAuthRequired)
			return
		case r.Method != http.MethodConnect || r.Host != allowed():
			p.refused.Add(1)
			w.WriteHeader(http.StatusForbidden)
			return
		}
		there, err := new(net.Dialer).DialContext(r.Context(), "tcp", r.Host)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer func() { _ = there.Close() }()
		here, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = here.Close() }()
		p.opened.Add(1)
		if _, err := io.WriteString(here, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
			return
		}
		go func() {
			_, _ = io.Copy(there, here)
			_ = there.Close()
		}()
		_, _ = io.Copy(here, there)
	}))
	t.Cleanup(p.Close)
	return p
}

// as returns the proxy's URL with a login.
func (p *webProxy) as(login string) string { return strings.Replace(p.URL, "//", "//"+login+"@", 1) }

// TestNodesBehindAProxy has nodes that reach nothing but an HTTP proxy come in by
// WebSocket: they enroll through it, in plain and sealed, and where TLS goes all
// the way to the broker they join the fleet through it, too.
func TestNodesBehindAProxy(t *testing.T) {
	t.Parallel()
	for name, plain := range map[string]bool{"wss to the broker": false, "ws, from a proxy that ends TLS": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := testbed.New(t, testbed.Options{Edit: func(c *daemon.Config) {
				c.Broker.WebSocket.Listen, c.Broker.WebSocket.Plain = "127.0.0.1:0", plain
			}})
			url := f.Daemon().WebSocketURL()
			_, address, _ := strings.Cut(url, "://")
			proxy := newWebProxy(t, func() string { return address })
			through := func(cfg *server.Config) { cfg.Proxy = proxy.as("node:let-me-out") }
			token := func(edit func(*jwt.Claims)) string {
				return f.Token(func(c *jwt.Claims) {
					c.Brokers, c.Secure = url, !plain
					if err := c.SetLimits(jwt.Limits{CA: f.Daemon().CAFingerprint()}); err != nil {
						t.Fatal(err)
					}
					edit(c)
				})
			}
			agents := []*testbed.Agent{
				f.Agent("plain.example.net", token(func(*jwt.Claims) {}), through),
				f.Agent("sealed.example.net", token(f.Seal), through),
			}
			f.WaitProvisioned(agents...)
			if got := proxy.opened.Load(); got < int64(len(agents)) {
				t.Errorf("%d connections through the proxy, want one for each of %d nodes or more", got, len(agents))
			}
			if plain { // nobody is in the fleet without showing a certificate
				if strings.Contains(f.Log(), `"msg":"connected to the fleet"`) {
					t.Error("a node joined the fleet")
				}
				f.Check()
				return
			}
			f.Eventually("both nodes are in the fleet", func() bool {
				return strings.Count(f.Log(), `"msg":"connected to the fleet"`) >= len(agents)
			})
			f.Check()
		})
	}
}

// TestAProxyThatRefuses has nodes say why, without the password.
func TestAProxyThatRefuses(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Edit: func(c *daemon.Config) { c.Broker.WebSocket.Listen = "127.0.0.1:0" }})
	url := f.Daemon().WebSocketURL()
	proxy := newWebProxy(t, func() string { return "192.0.2.1:443" })
	token := f.Token(func(c *jwt.Claims) { c.Brokers, c.Secure = url, true })
	tests := map[wire.Identity]struct{ login, says string }{
		"unknown.example.net":   {"node:" + testbed.Secret, "wants user and password"},
		"forbidden.example.net": {"node:let-me-out", "many let through nothing but port 443"},
	}
	for id, tt := range tests {
		f.Agent(string(id), token, func(cfg *server.Config) { cfg.Proxy = proxy.as(tt.login) })
		f.Eventually("the log of "+string(id)+" says why", func() bool { return strings.Contains(f.Log(), tt.says) })
	}
	if strings.Contains(f.Log(), testbed.Secret) || strings.Contains(f.Log(), "let-me-out") {
		t.Error("the log holds a password")
	}
	if got := proxy.opened.Load(); got != 0 {
		t.Errorf("%d connections through the proxy", got)
	}
	// Whoever is told to ask no proxy reaches the broker.
	f.WaitProvisioned(f.Agent("direct.example.net", token, func(cfg *server.Config) { cfg.Proxy = "none" }))
}
