package broker_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/wire"
	"muster/provisioner/broker"
)

// secretToken is presented in many wrong ways and must not be in the log.
const secretToken = "eyJhbGciOiJSUzI1NiJ9.eyJjaHQiOiJ0b29tYW55c2VjcmV0cyJ9.dG9vbWFueXNlY3JldHM"

func TestTokenStaysOutOfTheLog(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *broker.Config) {
		c.Gate.VerifyToken = func(p broker.Presented) (time.Time, error) {
			if p.Token == goodToken {
				return time.Time{}, nil
			}
			return time.Time{}, fmt.Errorf("a careless verifier: %q", string(p.Token))
		}
	})
	for name, members := range map[string]map[string]any{
		"wrong token":  {"auth_token": secretToken},
		"as name":      {"auth_token": "x", "name": secretToken},
		"as user":      {"user": secretToken, "pass": secretToken},
		"as nkey":      {"nkey": secretToken, "sig": secretToken, "auth_token": secretToken},
		"as language":  {"auth_token": secretToken, "lang": secretToken, "version": secretToken},
		"over a limit": {"auth_token": strings.Repeat(secretToken, 300)},
	} {
		if got := s.dial(t, nil).hello(members); len(got) == 0 {
			t.Errorf("%s: accepted", name)
		}
	}
	s.dial(t, nil).say(secretToken, "CONNECT "+secretToken)
	s.dial(t, nil).say("CONNECT {\"auth_token\": \"" + secretToken + "\"")
	c := s.dial(t, nil).mustHello(map[string]any{"auth_token": goodToken, "lang": secretToken})
	c.say(subscribe(secretToken), publish(secretToken))
	c.say(secretToken)

	eventually(t, "log of each kind", func() bool {
		got := s.log.String()
		return strings.Contains(got, "connection not admitted") && strings.Contains(got, "Publish Violation")
	})
	got := s.log.String()
	for part := range strings.SplitSeq(secretToken, ".") {
		if strings.Contains(got, part) {
			t.Errorf("log has %q of the token:\n%s", part, got)
		}
	}
	if strings.Contains(got, goodToken) {
		t.Errorf("log has the good token:\n%s", got)
	}
}

// ways are how clients connect to a site made with byWebSocket(true).
var ways = map[string]func(*site, *testing.T) *raw{
	"over TCP":     func(s *site, t *testing.T) *raw { t.Helper(); return s.dial(t, nil) },
	"by WebSocket": (*site).dialWeb,
}

func TestRefusalIsLoggedOnceInOurWords(t *testing.T) {
	t.Parallel()
	for name, dial := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, byWebSocket(true))
			dial(s, t).hello(map[string]any{"auth_token": "wrong"})
			eventually(t, "log line", func() bool { return strings.Contains(s.log.String(), "not admitted") })
			stop(t, s.Broker)                                                 // nothing can be written after this
			got := strings.Split(strings.TrimSpace(s.log.String()), "\n")[1:] // behind that there is no TLS
			if len(got) != 1 || !strings.Contains(got[0], `msg="connection not admitted"`) ||
				!strings.Contains(got[0], "address=127.0.0.1:") ||
				!strings.Contains(got[0], "code=token_invalid") || !strings.Contains(got[0], errToken.Error()) {
				t.Errorf("log = %q", got)
			}
		})
	}
}

func TestNormalOperationIsNotLogged(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.muster(t).Close()
	s.dial(t, nil).mustHello(map[string]any{"auth_token": goodToken}).conn.Close()
	stop(t, s.Broker)
	if got := s.log.String(); got != "" {
		t.Errorf("log = %s", got)
	}
}

func TestFailedHandshakeIsExplained(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.dial(t, s.tlsConfig(newAuthority(t).issue(t, wire.RoleNode, "web1.example.net"))).hello(nil)
	eventually(t, "explanation", func() bool {
		got := s.log.String()
		return strings.Contains(got, "TLS handshake error") && strings.Contains(got, "unknown authority") &&
			strings.Contains(got, "127.0.0.1")
	})
}

func TestFloodOfRefusalsIsBounded(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	begun := time.Now()
	for range 300 {
		s.dial(t, nil).hello(map[string]any{"auth_token": "wrong"})
	}
	eventually(t, "refusals", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.refused) == 300
	})
	// 100 at once and 20 a second; the loop takes one second, or ten under load.
	n, took := strings.Count(s.log.String(), "\n"), time.Since(begun)
	if limit := 100 + 20*took.Seconds(); n < 100 || float64(n) > limit {
		t.Errorf("300 refused connections made %d lines in %v, want 100 to %.0f", n, took, limit)
	}
}

// The server puts client-controlled text into a format string.
func TestClientCannotFormatTheLog(t *testing.T) {
	t.Parallel()
	for name, dial := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, byWebSocket(true))
			c := dial(s, t).mustHello(map[string]any{"auth_token": goodToken,
				"lang": strings.Repeat("%[1]900000s", 200) + ` \" - `})
			if got := c.say(publish("not.allowed")); !refusal(got) {
				t.Fatalf("answer = %q, want a permissions violation", got)
			}
			if got := c.say(subscribe("not.allowed.%[1]900000d")); !refusal(got) {
				t.Fatalf("answer = %q, want a permissions violation", got)
			}
			eventually(t, "log lines", func() bool { return strings.Count(s.log.String(), "\n") >= 2 })
			got := s.log.String()
			if len(got) > 4096 || !strings.Contains(got, "not.allowed") || strings.Contains(got, "900000s") {
				t.Errorf("log of %d bytes: %.1000s", len(got), got)
			}
		})
	}
}

// Client-controlled text is removed before formatting, or it would fill the memory.
func TestRender(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		format, text, address string
		args                  int // how often the argument is formatted
	}{
		"server":             {"no space: %s", "no space: arg", "", 1},
		"new client":         {"127.0.0.1:1 - cid:7 - TLS handshake error: %s", "TLS handshake error: arg", "127.0.0.1:1", 1},
		"known client":       {`127.0.0.1:1 - cid:7 - "v1:go" - "A/B" - Subject %s`, "Subject arg", "127.0.0.1:1", 1},
		"hostile client":     {`127.0.0.1:1 - cid:7 - "%[1]s%[1]s%[1]s \" - " - "A" - Subject %s`, "Subject arg", "127.0.0.1:1", 1},
		"by WebSocket":       {`192.0.2.1/127.0.0.1:1 - wid:7 - "%[1]s" - Subject %s`, "Subject arg", "192.0.2.1/127.0.0.1:1", 1},
		"client as argument": {"%s", "arg", "", 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			arg := &counter{}
			text, address, client := broker.Render(tt.format, arg)
			if text != tt.text || address != tt.address || client != (tt.address != "") || arg.n != tt.args {
				t.Errorf("Render = %q, %q, %v after formatting %d times", text, address, client, arg.n)
			}
		})
	}
}

type counter struct{ n int }

func (c *counter) String() string { c.n++; return "arg" }

func TestWithoutALog(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *broker.Config) { c.Log, c.Refused = nil, nil })
	if got := s.dial(t, nil).hello(map[string]any{"auth_token": "wrong"}); len(got) == 0 {
		t.Error("accepted")
	}
	conn := tls.Client(s.dial(t, nil).conn, s.tlsConfig())
	if err := conn.HandshakeContext(context.Background()); err != nil {
		t.Error(err)
	}
	_, _ = io.WriteString(conn, "nonsense\r\n")
}

// A client with a token sends malformed headers, of which nats.go complains; they are not logged, other complaints
// are.
func TestMalformedHeadersAreNotLogged(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	nc := s.muster(t)
	sub, err := nc.SubscribeSync(wire.SubjectEnroll)
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	c := s.dial(t, nil).mustHello(map[string]any{"auth_token": goodToken})
	const header = "NATS/1.0\r\nnone\r\n\r\n"
	if got := c.say(fmt.Sprintf("HPUB %s %d %d\r\n%s", wire.SubjectEnroll, len(header), len(header),
		header)); len(got) > 0 {
		t.Fatalf("answered %q", got)
	}
	if _, err := sub.NextMsg(patience); err != nil {
		t.Fatal(err)
	}
	if err := nc.LastError(); !errors.Is(err, nats.ErrBadHeaderMsg) {
		t.Errorf("nats.go complains of %v, want %v", err, nats.ErrBadHeaderMsg)
	}
	nc.ErrorHandler()(nc, sub, nats.ErrBadHeaderMsg)
	nc.ErrorHandler()(nc, sub, nats.ErrSlowConsumer)
	got := s.log.String()
	if strings.Count(got, "\n") != 1 || !strings.Contains(got, nats.ErrSlowConsumer.Error()) {
		t.Errorf("log = %q, want one line, about the slow consumer", got)
	}
}
