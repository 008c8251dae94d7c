package broker_test

import (
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/wire"
	"muster/provisioner/broker"
)

func byWebSocket(plain bool) func(*broker.Config) {
	return func(cfg *broker.Config) { cfg.WebSocket = broker.WebSocketConfig{Listen: "127.0.0.1:0", Plain: plain} }
}

func (s *site) web(opts ...nats.Option) (*nats.Conn, error) {
	name := wire.NewID()
	return nats.Connect(s.WebSocketURL(),
		append([]nats.Option{nats.Name(name), nats.CustomInboxPrefix(wire.InboxPrefix(name)),
			nats.NoReconnect(), nats.Timeout(patience)}, opts...)...)
}

// The address is the connection's, whatever the headers say.
func TestTokenByWebSocket(t *testing.T) {
	t.Parallel()
	for name, plain := range map[string]bool{"wss": false, "ws": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, byWebSocket(plain))
			if got := s.WebSocketURL(); !strings.HasPrefix(got, name+"://127.0.0.1:") {
				t.Fatalf("WebSocketURL = %q", got)
			}
			origins := respond(t, s.muster(t), wire.SubjectEnroll, []byte("welcome"))
			opts := []nats.Option{nats.Token(goodToken),
				nats.WebSocketConnectionHeaders(http.Header{"X-Forwarded-For": {"192.0.2.66"}})}
			if !plain {
				opts = append(opts, nats.Secure(s.tlsConfig()))
			}
			nc, err := s.web(opts...)
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			reply, err := nc.Request(wire.SubjectEnroll, []byte("{}"), patience)
			if err != nil || string(reply.Data) != "welcome" {
				t.Fatalf("reply = %v, %v", reply, err)
			}
			if o := receive(t, "request", origins); o.Account != broker.AccountProvisioning || o.Host != "127.0.0.1" {
				t.Errorf("request comes from %+v", o)
			}
			if nc, err := s.web(append(opts, nats.Token("another"))...); err == nil {
				nc.Close()
				t.Error("a stranger's token was taken")
			}
		})
	}
}

// A certificate over WebSocket is checked against the present authorities, and can be dropped.
func TestFleetByWebSocket(t *testing.T) {
	t.Parallel()
	s := newSite(t, byWebSocket(false))
	const id = "web1.example.net"
	cert := s.ca.issue(t, wire.RoleNode, id)
	connect := func() (*nats.Conn, error) { return s.web(s.mutual(cert)) }
	nc, err := connect()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if _, err := nc.Subscribe(wire.CommandSubject(id),
		func(m *nats.Msg) { _ = m.Respond([]byte("here")) }); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	reply, err := s.muster(t).Request(wire.CommandSubject(id), nil, patience)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(reply.Data); got != "here" {
		t.Errorf("answer = %q", got)
	}

	other := newAuthority(t)
	foreign := other.issue(t, wire.RoleNode, id)
	notClient := s.ca.issue(t, wire.RoleNode, id, func(c *x509.Certificate) { c.ExtKeyUsage = nil })
	for what, bad := range map[string]nats.Option{"another authority's": s.mutual(foreign),
		"not a client's": s.mutual(notClient)} {
		if nc, err := s.web(bad, nats.Token(goodToken)); err == nil {
			nc.Close()
			t.Errorf("a certificate that is %s was taken", what)
		}
	}

	closed := make(chan struct{})
	nc.SetClosedHandler(func(*nats.Conn) { close(closed) })
	s.revoke(cert, errors.New("revoked"))
	if err := s.Recheck(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	receive(t, "end of the connection", closed)
	if nc, err := connect(); err == nil {
		nc.Close()
		t.Error("a revoked certificate was taken")
	}
}

// Browsers on pages of other origins are refused.
func TestWebSocketPort(t *testing.T) {
	t.Parallel()
	s := newSite(t, byWebSocket(true))
	u, err := url.Parse(s.WebSocketURL())
	if err != nil {
		t.Fatal(err)
	}
	for origin, ok := range map[string]bool{"http://" + u.Host: true, "https://evil.example": false} {
		nc, err := s.web(nats.Token(goodToken), nats.WebSocketConnectionHeaders(http.Header{"Origin": {origin}}))
		if err == nil {
			nc.Close()
		}
		if (err == nil) != ok {
			t.Errorf("from a page of %s: %v", origin, err)
		}
	}
	if got := newSite(t).WebSocketURL(); got != "" {
		t.Errorf("without WebSocket there is %q", got)
	}
}

// Clients send lines that look like errors of a disk. No alarm follows, the log is bounded, and no broker restarts.
func TestWebSocketClientsCannotFakeErrors(t *testing.T) {
	t.Parallel()
	const failure = "critical write error"
	web := func(path, origin string) func(string) string {
		return func(address string) string {
			return "GET " + path + " HTTP/1.1\r\nHost: " + address + "\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n" +
				"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nOrigin: " + origin + "\r\n\r\n"
		}
	}
	for name, tt := range map[string]struct {
		plain bool
		text  func(address string) string
	}{
		"of another origin": {true, web("/", failure)},
		"a leaf":            {true, web("/leafnode", "")},
		"no WebSocket":      {true, func(address string) string { return "GET / HTTP/1.1\r\nHost: " + address + "\r\n\r\n" }},
		"no TLS":            {false, func(string) string { return failure + "\r\n\r\n" }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, byWebSocket(tt.plain))
			u, err := url.Parse(s.WebSocketURL())
			if err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			for range 150 {
				conn, err := net.Dial("tcp", u.Host)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.WriteString(conn, tt.text(u.Host))
				_ = conn.SetDeadline(time.Now().Add(patience))
				_, _ = conn.Read(make([]byte, 1))
				_ = conn.Close()
			}
			stop(t, s.Broker) // nothing can be said after this
			log := s.log.String()
			if n, limit := strings.Count(log, "\n"), 105+20*time.Since(begun).Seconds(); float64(n) > limit ||
				strings.Contains(log, "level=ERROR") {
				t.Errorf("%d lines, want at most %.0f and no error: %.1000s", n, limit, log)
			}
		})
	}
}
