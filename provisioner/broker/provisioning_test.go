package broker_test

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/seal"
	"muster/internal/wire"
	"muster/provisioner/broker"
)

// origin is Nats-Request-Info.
type origin struct {
	Account string `json:"acc"`
	User    string `json:"user"`
	Name    string `json:"name"`
	Host    string `json:"host"`
}

// respond replies to requests on subject and returns their origins.
func respond(t *testing.T, nc *nats.Conn, subject string, reply []byte) <-chan origin {
	t.Helper()
	origins := make(chan origin, 16) // more than any test asks
	_, err := nc.QueueSubscribe(subject, wire.QueueProvisioners, func(m *nats.Msg) {
		var o origin
		if values := m.Header.Values("Nats-Request-Info"); len(values) != 1 {
			t.Errorf("Nats-Request-Info = %q, want one", values)
		} else if err := json.Unmarshal([]byte(values[0]), &o); err != nil {
			t.Error(err)
		}
		if err := m.Respond(reply); err != nil {
			t.Error(err)
		}
		origins <- o
	})
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	return origins
}

func TestProvisioningClientReachesNothingElse(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	other := s.dial(t, nil).mustHello(map[string]any{"auth_token": goodToken})
	c := s.dial(t, nil).mustHello(map[string]any{"auth_token": goodToken})

	allowed := []string{
		publish(wire.SubjectEnroll), publish(wire.SubjectApplied),
		subscribe(wire.InboxPrefix(c.name) + ".x"), subscribe(wire.InboxPrefix(c.name) + ".>"),
	}
	for _, line := range allowed {
		if got := c.say(line); len(got) > 0 {
			t.Errorf("%q answered %q, want it accepted", line, got)
		}
	}

	refused := []string{
		subscribe(">"), subscribe("*"), subscribe("*.*.*"), subscribe("muster.>"), subscribe("muster.v1.*"),
		subscribe(wire.SubjectEnroll), subscribe(wire.SubjectApplied), subscribe(wire.SubjectEnroll + " provisioners"),
		subscribe("_INBOX.>"), subscribe("_INBOX.*.x"), subscribe("_INBOX.*.>"), subscribe(wire.InboxPrefix(c.name)),
		subscribe(wire.InboxPrefix(other.name) + ".x"), subscribe(wire.InboxPrefix(other.name) + ".>"),
		subscribe(wire.InboxPrefix(other.name) + ".x q"), subscribe("_R_.>"), subscribe("$SYS.>"), subscribe("$JS.API.>"),
		subscribe(wire.AllNodeEvents), subscribe("muster.v1.event.>"), subscribe(broker.AllCommands),
		subscribe(wire.CommandSubject("web1.example.net")),
		publish(wire.InboxPrefix(other.name) + ".x"), publish(wire.InboxPrefix(c.name) + ".x"),
		publish("_R_.x"), publish("$JS.API.INFO"), publish("$JS.API.STREAM.NAMES"), publish("$SYS.REQ.SERVER.PING"),
		publish("$SYS.REQ.USER.INFO"), publish("muster.v1.enroll.x"), publish(wire.SubjectRenew), subscribe(wire.SubjectRenew), publish(wire.SubjectCertificate), subscribe(wire.SubjectCertificate), publish("muster.v1"), publish("muster.node.web1"),
		publish(wire.CommandSubject("web1.example.net")), publish(wire.RegistrationSubject("web1.example.net")),
		publish(wire.EventSubject("web1.example.net", "startup")),
	}
	for _, line := range refused {
		if got := c.say(line); !refusal(got) {
			t.Errorf("%q answered %q, want a permissions violation", line, got)
		}
	}
	if got := other.say(); len(got) > 0 {
		t.Errorf("the other client was sent %q", got)
	}
}

func TestRequestCrossesTheBoundary(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	reply := bytes.Repeat([]byte("r"), wire.MaxReplyBytes)
	origins := respond(t, s.muster(t), wire.SubjectEnroll, reply)
	nc, inbox := s.client(t, nats.Token(goodToken))

	m := nats.NewMsg(wire.SubjectEnroll)
	m.Data = []byte("{}")
	m.Header.Add("Nats-Request-Info", `{"acc":"FLEET","user":"web1.example.net","name":"x","host":"10.0.0.1"}`)
	m.Header.Add("nats-request-info", `{"acc":"FLEET"}`)
	got, err := nc.RequestMsg(m, patience)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Data, reply) {
		t.Errorf("reply has %d bytes, want the %d sent", len(got.Data), len(reply))
	}
	want := origin{Account: broker.AccountProvisioning, User: "provisioning",
		Name: strings.TrimPrefix(inbox, "_INBOX."), Host: "127.0.0.1"}
	if o := receive(t, "request", origins); o != want {
		t.Errorf("the responder was told of %+v, want %+v", o, want)
	}
}

func TestAppliedCrossesFromBothAccounts(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	origins := respond(t, s.muster(t), wire.SubjectApplied, []byte("ok"))
	machine, _ := s.client(t, nats.Token(goodToken))
	node, _ := s.client(t, s.mutual(s.ca.issue(t, wire.RoleNode, "web1.example.net")))
	for user, nc := range map[string]*nats.Conn{"provisioning": machine, "web1.example.net": node} {
		if _, err := nc.Request(wire.SubjectApplied, []byte("{}"), patience); err != nil {
			t.Fatalf("%s: %v", user, err)
		}
		if o := receive(t, "request", origins); o.User != user {
			t.Errorf("the responder was told of %q, want %q", o.User, user)
		}
	}
}

func TestEnrollIsNotForNodes(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	node := s.dial(t, s.tlsConfig(s.ca.issue(t, wire.RoleNode, "web1.example.net"))).mustHello(nil)
	if got := node.say(publish(wire.SubjectEnroll)); !refusal(got) {
		t.Errorf("enroll from the fleet answered %q, want a permissions violation", got)
	}
}

func TestProvenSessionIsReported(t *testing.T) {
	t.Parallel()
	x25519, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := seal.NewPrivateKey(x25519)
	if err != nil {
		t.Fatal(err)
	}
	opener, err := seal.NewOpener(key)
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t, func(c *broker.Config) {
		c.Gate.VerifyToken = func(p broker.Presented) (time.Time, error) {
			_, err := opener.OpenToken(seal.Presented{Token: string(p.Token), Name: p.Nkey, Signature: p.Signature,
				Nonce: p.Nonce})
			return time.Time{}, err
		}
	})
	origins := respond(t, s.muster(t), wire.SubjectEnroll, []byte("ok"))
	session, err := seal.NewSession(key.Public(), goodToken)
	if err != nil {
		t.Fatal(err)
	}
	nc, _ := s.client(t, nats.Token(session.Token()), nats.Nkey(session.Name(), session.Prove))
	if _, err := nc.Request(wire.SubjectEnroll, []byte("{}"), patience); err != nil {
		t.Fatal(err)
	}
	if o := receive(t, "request", origins); o.User != session.Name() {
		t.Errorf("the responder was told of %q, want the session %q", o.User, session.Name())
	}

	c := s.dial(t, nil)
	sig, err := session.Prove([]byte("a nonce of another connection"))
	if err != nil {
		t.Fatal(err)
	}
	c.hello(map[string]any{"auth_token": session.Token(), "nkey": session.Name(),
		"sig": base64.RawURLEncoding.EncodeToString(sig)})
	if d := s.lastRefusal(t); !errors.Is(d, seal.ErrProof) {
		t.Errorf("replayed session was denied with %v, want %v", d, seal.ErrProof)
	}
}

func TestRefusedConnections(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	tests := map[string]map[string]any{
		"no credentials":       {},
		"wrong token":          {"auth_token": "wrong"},
		"good token, bad name": {"auth_token": goodToken, "name": "*"},
		"user":                 {"user": "muster", "pass": "guess"},
		"jwt":                  {"jwt": goodToken, "sig": "x"},
		"account":              {"auth_token": goodToken, "account": broker.AccountMuster},
		"new account":          {"auth_token": goodToken, "account": "X", "new_account": true},
		"leaf":                 {"remote_account": broker.AccountMuster, "auth_token": "wrong"},
	}
	for name, members := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := s.dial(t, nil).hello(members)
			if want := []string{"-ERR 'Authorization Violation'", "EOF"}; !slices.Equal(got, want) {
				t.Errorf("answer = %q, want %q", got, want)
			}
		})
	}
}

func TestNothingIsServedBeforeConnect(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, line := range []string{subscribe(">"), publish("muster.v1.enroll")} {
		got := s.dial(t, nil).say(line)
		if len(got) == 0 || got[len(got)-1] != "EOF" {
			t.Errorf("%q before CONNECT answered %q, want the connection closed", line, got)
		}
	}
}

func TestSecondConnectIsDecidedAnew(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := s.dial(t, nil).mustHello(map[string]any{"auth_token": goodToken})
	first := c.name
	c.name = wire.NewID()
	c.mustHello(map[string]any{"auth_token": goodToken})
	if got := c.say(subscribe(wire.InboxPrefix(first) + ".x")); !refusal(got) {
		t.Errorf("inbox of the first CONNECT answered %q after the second, want a permissions violation", got)
	}
	got := c.hello(map[string]any{"auth_token": "wrong"})
	if !slices.Contains(got, "EOF") {
		t.Errorf("third CONNECT with a wrong token answered %q, want the connection closed", got)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *broker.Config) { c.MaxConnections = 4 })
	c := s.dial(t, nil)
	c.mustHello(map[string]any{"auth_token": goodToken})

	t.Run("subscriptions", func(t *testing.T) {
		got := []string{}
		for i := 0; i < 20 && len(got) == 0; i++ {
			got = c.say("SUB " + wire.InboxPrefix(c.name) + ".x " + strings.Repeat("1", i+1))
		}
		if len(got) == 0 || !strings.Contains(got[0], "maximum subscriptions") {
			t.Errorf("20 subscriptions answered %q, want a limit", got)
		}
	})
	t.Run("payload", func(t *testing.T) {
		largest, _ := s.client(t, nats.Token(goodToken))
		eventually(t, "announced limit", func() bool { return largest.MaxPayload() == wire.MaxMessageBytes })
		if err := largest.Publish(wire.SubjectEnroll, make([]byte, wire.MaxMessageBytes)); err != nil {
			t.Errorf("largest message: %v", err)
		}
		if err := largest.Flush(); err != nil {
			t.Errorf("largest message: %v", err)
		}
		largest.Close()
		larger := wire.MaxMessageBytes + 1
		got := c.say(fmt.Sprintf("PUB muster.v1.enroll %d", larger), strings.Repeat("x", larger))
		if len(got) == 0 || !strings.Contains(got[0], "Maximum Payload") {
			t.Errorf("message over the limit answered %q, want it refused", got)
		}
	})
	t.Run("connections", func(t *testing.T) {
		node := s.ca.issue(t, wire.RoleNode, "web1.example.net")
		eventually(t, "free place", func() bool { return s.Server().NumClients() == 0 })
		s.dial(t, nil).mustHello(map[string]any{"auth_token": goodToken})
		s.dial(t, nil).mustHello(map[string]any{"auth_token": goodToken})
		got := s.dial(t, nil).hello(map[string]any{"auth_token": goodToken})
		if len(got) == 0 || !strings.Contains(got[0], "maximum account active connections") {
			t.Errorf("third connection answered %q, want a limit", got)
		}
		s.dial(t, s.tlsConfig(node)).mustHello(nil) // the fleet has its places
	})
}

func TestLongConnect(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", wire.MaxTokenBytes)
	s := newSite(t, func(c *broker.Config) {
		c.Gate.VerifyToken = func(p broker.Presented) (time.Time, error) {
			if string(p.Token) != long {
				return time.Time{}, errToken
			}
			return time.Time{}, nil
		}
	})
	s.dial(t, nil).mustHello(map[string]any{"auth_token": long})
	got := s.dial(t, nil).hello(map[string]any{"auth_token": long + long})
	if len(got) == 0 || got[len(got)-1] != "EOF" {
		t.Errorf("CONNECT of 16 KiB answered %.100q, want the connection closed", got)
	}
}

func TestSilentClientIsDropped(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := s.dial(t, nil)
	c.last() // fails unless the connection ends
}

func TestDeadlineOfAToken(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *broker.Config) {
		c.Gate.VerifyToken = func(broker.Presented) (time.Time, error) {
			return time.Now().Add(300 * time.Millisecond), nil
		}
	})
	c := s.dial(t, nil).mustHello(map[string]any{"auth_token": goodToken})
	if got := c.last(); !strings.Contains(got, "User Authentication Expired") {
		t.Errorf("the connection ended with %q, want it expired", got)
	}
}
