package choria_test

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/wire"
	"muster/provisioner/choria"
	"muster/provisioner/events"
)

// encode returns a reply with a good status.
func encode(t *testing.T, r choria.Reply, data any) []byte {
	t.Helper()
	body, err := json.Marshal(map[string]any{"statuscode": 0, "data": data})
	if err != nil {
		t.Error(err)
	}
	r.Body, r.Time = body, time.Now()
	b, err := r.Encode(choria.V1)
	if err != nil {
		t.Error(err)
	}
	return b
}

// Each server sends something else first, and is provisioned with what it then answers.
func TestForeignRepliesAreIgnored(t *testing.T) {
	t.Parallel()
	f := newFleet(t, nil)
	thief := start(t, f, "thief.example.net", func(string) (int, any) { return 1, "not now" })
	foreign := map[string]func(s *server, r *choria.Request) (conn *nats.Conn, subject string, reply []byte){
		"garbage": func(s *server, r *choria.Request) (*nats.Conn, string, []byte) {
			return s.conn, r.ReplyTo, []byte("}{\x00")
		},
		"a reply to another request": func(s *server, r *choria.Request) (*nats.Conn, string, []byte) {
			return s.conn, r.ReplyTo, encode(t, choria.Reply{Request: strings.Repeat("0", 32), Sender: s.name}, "forged")
		},
		"a reply of another sender": func(s *server, r *choria.Request) (*nats.Conn, string, []byte) {
			return s.conn, r.ReplyTo, encode(t, choria.Reply{Request: r.ID, Sender: "thief.example.net"}, "forged")
		},
		"a reply to no request": func(s *server, r *choria.Request) (*nats.Conn, string, []byte) {
			return s.conn, r.ReplyTo + "0", encode(t, choria.Reply{Request: r.ID + "0", Sender: s.name}, "forged")
		},
		// The thief has guessed the request, and may publish below its own name.
		"a reply on another connection": func(s *server, r *choria.Request) (*nats.Conn, string, []byte) {
			subject := strings.Replace(r.ReplyTo, wire.Identity(s.name).SubjectToken(), "thief_example_net", 1)
			return thief.conn, subject, encode(t, choria.Reply{Request: r.ID, Sender: thief.name}, "forged")
		},
	}
	var servers []*server
	for _, send := range foreign {
		s := &server{t: t, f: f, name: fmt.Sprintf("web%d.example.net", len(servers))}
		s.before = func(r *choria.Request) {
			conn, subject, reply := send(s, r)
			if err := conn.Publish(subject, reply); err != nil {
				t.Error(err)
			}
			if err := conn.FlushTimeout(10 * time.Second); err != nil { // the gateway has it first
				t.Error(err)
			}
		}
		s.connect()
		servers = append(servers, s)
	}
	for _, s := range servers {
		s.provisioned()
	}
	f.Check()
}

// A server's answers are data of a stranger. Choria's provisioner ends with a CSR that is no PEM.
func TestHostileAnswersAreRefused(t *testing.T) {
	t.Parallel()
	f := newFleet(t, nil)
	of := func(name string) string { return (&server{t: t, name: name}).newKey() }
	csr := func(text string) any { return map[string]string{"csr": text, "ssldir": "/etc/choria/ssl"} }
	garbage := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: []byte("garbage")}))
	for name, hostile := range map[string]struct {
		action string
		status int
		answer any
		code   wire.Code
	}{
		"text":         {"gencsr", 0, csr("not PEM"), wire.CodeCSRInvalid},
		"garbage":      {"gencsr", 0, csr(garbage), wire.CodeCSRInvalid},
		"two":          {"gencsr", 0, csr(of("two.example.net") + of("two.example.net")), wire.CodeCSRInvalid},
		"none":         {"gencsr", 0, csr(""), wire.CodeCSRInvalid},
		"another":      {"gencsr", 0, csr(of("web9.example.net")), wire.CodeCSRIdentity},
		"no-object":    {"gencsr", 0, "text", wire.CodeNodeRefused},
		"no-directory": {"gencsr", 0, map[string]string{"csr": of("no-directory.example.net")}, wire.CodeNodeRefused},
		"lines": {"gencsr", 0, map[string]string{"csr": of("lines.example.net"), "ssldir": "/a\nlogfile=/etc/passwd"},
			wire.CodeNodeRefused},
		"refusing":  {"configure", 1, "not now", wire.CodeNodeRefused},
		"inventory": {"inventory", 0, []string{"facts"}, wire.CodeNodeRefused},
		"facts":     {"inventory", 0, map[string]any{"facts": []string{"no object"}}, wire.CodeNodeRefused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, f, name+".example.net", func(action string) (int, any) {
				if action == hostile.action {
					return hostile.status, hostile.answer
				}
				return 0, nil
			})
			f.Eventually(string(hostile.code), func() bool {
				return slices.ContainsFunc(f.Events(), func(e events.Event) bool {
					return e.Type == events.Refused && e.Node == s.name && e.Code == hostile.code
				})
			})
			if s.has("restart") {
				t.Error("the server was told to restart")
			}
		})
	}
}

func TestSecondConnectionOfANameIsRefused(t *testing.T) {
	t.Parallel()
	f := newFleet(t, nil)
	start(t, f, web1, func(string) (int, any) { return 1, "not now" })
	if second, err := connect(f, web1); err == nil {
		second.Close()
		t.Fatal("two connections have one name")
	}
	f.Eventually("the operator sees why", func() bool {
		return slices.ContainsFunc(f.Events(), func(e events.Event) bool {
			return e.Type == events.Attempt && e.Code == wire.CodeBusy && strings.Contains(e.Cause, "two machines")
		})
	})
}

// A server drops a larger reply by itself. Another program does not.
func TestRepliesHaveALimit(t *testing.T) {
	t.Parallel()
	f := newFleet(t, nil)
	raw, err := net.Dial("tcp", strings.TrimPrefix(f.URL(), "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	if _, err := bufio.NewReader(raw).ReadString('\n'); err != nil { // the broker waits for the handshake then
		t.Fatal(err)
	}
	conn := tls.Client(raw, &tls.Config{InsecureSkipVerify: true})
	const size = 1<<20 + 1
	go func() { // the broker may close the connection meanwhile
		_, _ = fmt.Fprintf(conn, "CONNECT {\"auth_token\":%q,\"name\":%q,\"protocol\":1}\r\n", f.Token(nil), web1)
		_, _ = fmt.Fprintf(conn, "PUB provisioning.reply.web1_example_net.a.b %d\r\n%s\r\n", size, make([]byte, size))
	}()
	if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if said, _ := io.ReadAll(conn); !strings.Contains(string(said), "Maximum Payload Violation") {
		t.Errorf("the broker said %q", said)
	}
}
