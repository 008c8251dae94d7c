package broker_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/wire"
	"muster/provisioner/broker"
)

func TestNodeReachesOnlyItsOwnSubjects(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const long, short = wire.Identity("web.example.net"), wire.Identity("web")
	nodes := map[wire.Identity]*raw{}
	for _, id := range []wire.Identity{long, short} {
		nodes[id] = s.dial(t, s.tlsConfig(s.ca.issue(t, wire.RoleNode, string(id)))).mustHello(nil)
	}
	for self, c := range nodes {
		for _, line := range []string{
			publish(wire.EventSubject(self,
				"startup")), publish(wire.RegistrationSubject(self)), publish(wire.SubjectApplied),
			publish(wire.SubjectRenew), publish(wire.SubjectCertificate),
			subscribe(wire.CommandSubject(self)), subscribe(wire.InboxPrefix(c.name) + ".>"),
		} {
			if got := c.say(line); len(got) > 0 {
				t.Errorf("%s: %q answered %q, want it accepted", self, line, got)
			}
		}
		refused := []string{
			subscribe(">"), subscribe("muster.>"), subscribe("muster.v1.*.*"), subscribe(broker.AllCommands), subscribe("_INBOX.>"),
			subscribe("_R_.>"), subscribe("$JS.API.>"), subscribe(wire.AllNodeEvents), subscribe(wire.SubjectApplied),
			subscribe(wire.SubjectRenew), publish(wire.SubjectRenew + ".x"),
			subscribe(wire.SubjectCertificate), publish(wire.SubjectCertificate + ".x"),
			subscribe(wire.CommandSubject(self) + ".>"), subscribe(wire.EventSubject(self, "*")),
			publish(wire.CommandSubject(self)), publish("muster.v1.event." + string(self) + ".startup.x"),
			publish(wire.EventSubject(self, "a.b")), publish(wire.RegistrationSubject(self) + ".x"),
			publish("$JS.API.INFO"), publish("muster.node." + self.SubjectToken()),
		}
		for _, other := range []wire.Identity{long, short, "example.net", "web.example.net.x", "db"} {
			if other == self {
				continue
			}
			refused = append(refused,
				publish(wire.EventSubject(other, "startup")), publish(wire.RegistrationSubject(other)),
				publish(wire.CommandSubject(other)), subscribe(wire.CommandSubject(other)))
		}
		for other, o := range nodes {
			if other != self {
				refused = append(refused, subscribe(wire.InboxPrefix(o.name)+".x"),
					publish(wire.InboxPrefix(o.name)+".x"))
			}
		}
		for _, line := range refused {
			if got := c.say(line); !refusal(got) {
				t.Errorf("%s: %q answered %q, want a permissions violation", self, line, got)
			}
		}
	}
}

func TestNodeReachesProvisioners(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const id = wire.Identity("web1.example.net")
	muster := s.muster(t)
	heard := make(chan string, 4) // one per message below, and room to notice more
	for _, subject := range []string{wire.AllNodeEvents, wire.AllRegistration} {
		if _, err := muster.Subscribe(subject, func(m *nats.Msg) { heard <- m.Subject }); err != nil {
			t.Fatal(err)
		}
	}
	if err := muster.Flush(); err != nil {
		t.Fatal(err)
	}
	node, _ := s.client(t, s.mutual(s.ca.issue(t, wire.RoleNode, string(id))))
	for _, subject := range []string{wire.EventSubject(id, "startup"), wire.RegistrationSubject(id)} {
		if err := node.Publish(subject, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		if got := receive(t, "message", heard); got != subject {
			t.Errorf("provisioners heard %q, want %q", got, subject)
		}
	}
}

// A responder answers an event, as JetStream does when it is overrun. The node chose the reply subject: another
// node's record.
func TestRepliesToEventsStayOutOfMuster(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const id, other = wire.Identity("web1.example.net"), wire.Identity("web2.example.net")
	aims := []string{"muster.node." + other.SubjectToken(), "muster.entry.installation",
		wire.EventSubject(other, "alive"), wire.RegistrationSubject(other)}
	muster := s.muster(t)
	answered := make(chan string, 16) // one per message below, and room to notice more
	for _, subject := range []string{wire.AllNodeEvents, wire.AllRegistration} {
		_, err := muster.Subscribe(subject, func(m *nats.Msg) {
			if err := m.Respond([]byte("too many requests")); err != nil {
				t.Error(err)
			}
			answered <- m.Subject
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	var seen []*nats.Subscription
	for _, aim := range aims[:2] {
		sub, err := muster.SubscribeSync(aim)
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, sub)
	}
	if err := muster.Flush(); err != nil {
		t.Fatal(err)
	}
	node, _ := s.client(t, s.mutual(s.ca.issue(t, wire.RoleNode, string(id))))
	for _, subject := range []string{wire.EventSubject(id, "startup"), wire.RegistrationSubject(id)} {
		for _, aim := range aims {
			if err := node.PublishRequest(subject, aim, []byte("{}")); err != nil {
				t.Fatal(err)
			}
			if got := receive(t, "message", answered); got != subject {
				t.Errorf("provisioners heard %q, want %q", got, subject)
			}
		}
	}
	if err := muster.Flush(); err != nil {
		t.Fatal(err)
	}
	for _, sub := range seen {
		if m, err := sub.NextMsg(0); err == nil {
			t.Errorf("a node had %q sent to %s", m.Data, m.Subject)
		}
	}
	select {
	case subject := <-answered:
		t.Errorf("provisioners heard one message more, on %s", subject)
	default:
	}
}

// The broker must keep reply subjects no longer than an answer may take.
func TestReplySubjectsExpire(t *testing.T) {
	t.Parallel()
	account, err := newSite(t).Server().LookupAccount(broker.AccountMuster)
	if err != nil {
		t.Fatal(err)
	}
	for subject, want := range map[string]time.Duration{
		wire.SubjectEnroll: 30 * time.Second, wire.SubjectApplied: 30 * time.Second, wire.SubjectRenew: 30 * time.Second,
		wire.SubjectCertificate: 30 * time.Second,
		wire.AllNodeEvents:      100 * time.Millisecond, wire.AllRegistration: 100 * time.Millisecond,
	} {
		if got, err := account.ServiceExportResponseThreshold(subject); err != nil || got != want {
			t.Errorf("%s: %v, %v; want %v", subject, got, err, want)
		}
	}
}

func TestCommandIsAnsweredOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const id = wire.Identity("web1.example.net")
	if want := strings.Replace(broker.AllCommands, "*", id.SubjectToken(), 1); wire.CommandSubject(id) != want {
		t.Fatalf("command subject %q is not covered by %q", wire.CommandSubject(id), broker.AllCommands)
	}
	violations := make(chan error, 4) // the node makes one
	node, _ := s.client(t, s.mutual(s.ca.issue(t, wire.RoleNode, string(id))),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { violations <- err }))
	_, err := node.Subscribe(wire.CommandSubject(id), func(m *nats.Msg) {
		for _, text := range []string{"done", "again"} {
			if err := m.Respond([]byte(text)); err != nil {
				t.Error(err)
			}
		}
	})
	if err == nil {
		err = node.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.muster(t).Request(wire.CommandSubject(id), []byte("renew"), patience)
	if err != nil {
		t.Fatal(err)
	}
	if string(got.Data) != "done" {
		t.Errorf("answer = %q, want %q", got.Data, "done")
	}
	if err := receive(t, "refusal of the second answer", violations); !errors.Is(err, nats.ErrPermissionViolation) {
		t.Errorf("second answer: %v, want a permissions violation", err)
	}
}

func TestCertificatesAreCheckedAtConnect(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	foreign := newAuthority(t)
	now := time.Now()
	gone := s.ca.issue(t, wire.RoleNode, "gone.example.net")
	s.revoke(gone, errors.New("not on record"))

	tests := map[string]struct {
		cert tls.Certificate
		in   bool
		code wire.Code // if the gate refuses; empty if TLS does
	}{
		"node":          {s.ca.issue(t, wire.RoleNode, "web1.example.net"), true, ""},
		"provisioner":   {s.ca.issue(t, wire.RoleProvisioner, "prov1"), true, ""},
		"broker":        {s.ca.issue(t, wire.RoleBroker, "broker2"), false, wire.CodeDenied},
		"operator":      {s.ca.issue(t, wire.RoleOperator, "alice"), false, wire.CodeDenied},
		"not on record": {gone, false, wire.CodeDenied},
		"other installation's name": {s.ca.issue(t, wire.RoleNode, "web1.example.net", func(c *x509.Certificate) {
			c.URIs[0].Host = "other.example.net"
		}), false, wire.CodeDenied},
		"foreign authority": {foreign.issue(t, wire.RoleNode, "web1.example.net"), false, ""},
		"expired": {s.ca.issue(t, wire.RoleNode, "web1.example.net", func(c *x509.Certificate) {
			c.NotAfter = now.Add(-time.Second)
		}), false, ""},
		"not yet valid": {s.ca.issue(t, wire.RoleNode, "web1.example.net", func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = now.Add(24*time.Hour), now.Add(48*time.Hour) // its turn may come minutes later
		}), false, ""},
		"for servers": {s.ca.issue(t, wire.RoleNode, "web1.example.net", func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		}), false, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// A good token beside the certificate changes nothing.
			for _, members := range []map[string]any{nil, {"auth_token": goodToken}} {
				got := s.dial(t, s.tlsConfig(tt.cert)).hello(members)
				if tt.in != (len(got) == 0) {
					t.Errorf("answer = %q, want admitted: %v", got, tt.in)
				}
				violation := slices.Contains(got, "-ERR 'Authorization Violation'")
				if !tt.in && violation != (tt.code != "") {
					t.Errorf("answer = %q, want it refused by the gate: %v", got, tt.code != "")
				}
			}
		})
	}
}

func TestTokenOverTLS(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.dial(t, s.tlsConfig()).mustHello(map[string]any{"auth_token": goodToken})
	got := s.dial(t, s.tlsConfig()).hello(nil)
	if !slices.Contains(got, "EOF") {
		t.Errorf("TLS without any credentials answered %q, want it refused", got)
	}
}

func TestSessionsAreNotResumed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	config := s.tlsConfig(s.ca.issue(t, wire.RoleNode, "web1.example.net"))
	config.ClientSessionCache = tls.NewLRUClientSessionCache(8)
	for range 2 {
		c := s.dial(t, config).mustHello(nil)
		if c.conn.(*tls.Conn).ConnectionState().DidResume {
			t.Error("the session was resumed, want the certificate verified again")
		}
		c.conn.Close()
	}
}

func TestBrokerSendsItsWholeChain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := s.dial(t, s.tlsConfig()).mustHello(map[string]any{"auth_token": goodToken})
	certs := c.conn.(*tls.Conn).ConnectionState().PeerCertificates
	if len(certs) != 2 || !certs[1].Equal(s.ca.cert) {
		t.Errorf("the broker sent %d certificates, want the root as the last", len(certs))
	}
}

func TestCertificateIsRenewedWhileRunning(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	currentCertificate := func() *x509.Certificate {
		c := s.dial(t, s.tlsConfig()).mustHello(map[string]any{"auth_token": goodToken})
		return c.conn.(*tls.Conn).ConnectionState().PeerCertificates[0]
	}
	before := currentCertificate()
	cert := s.ca.issue(t, wire.RoleBroker, "localhost", func(c *x509.Certificate) { c.DNSNames = before.DNSNames })
	s.show(cert)
	if got := currentCertificate(); got.Equal(before) {
		t.Error("the old certificate is still shown")
	}
}

func TestConnectionEndsWithItsCertificate(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var c *raw
	var end time.Time
	for life := 2 * time.Second; ; life *= 2 { // longer where the machine stood still until it was over
		end = time.Now().Add(life)
		cert := s.ca.issue(t, wire.RoleNode, "web1.example.net", func(c *x509.Certificate) { c.NotAfter = end })
		c = s.dial(t, s.tlsConfig(cert))
		got := c.hello(nil)
		if len(got) == 0 {
			break
		}
		if time.Now().Before(end.Truncate(time.Second)) || life > patience {
			t.Fatalf("answer = %q, want admitted", got)
		}
	}
	if got := c.last(); !strings.Contains(got, "User Authentication Expired") {
		t.Errorf("the connection ended with %q, want it expired", got)
	}
	if now := time.Now(); now.Before(end.Truncate(time.Second)) {
		t.Errorf("the connection ended at %v, before the certificate at %v", now, end)
	}
}

func TestProvisionerConnectsByCertificate(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	nc, _ := s.client(t, s.mutual(s.ca.issue(t, wire.RoleProvisioner, "prov2")))
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.AccountInfo(t.Context()); err != nil {
		t.Errorf("JetStream of an outside provisioner: %v", err)
	}
	if _, err := nc.Subscribe(wire.SubjectEnroll,
		func(m *nats.Msg) { _ = m.Respond([]byte("from outside")) }); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	machine, _ := s.client(t, nats.Token(goodToken))
	got, err := machine.Request(wire.SubjectEnroll, nil, patience)
	if err != nil || string(got.Data) != "from outside" {
		t.Errorf("request = %v, %v, want it answered from outside", got, err)
	}
}
