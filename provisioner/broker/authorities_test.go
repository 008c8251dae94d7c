package broker_test

import (
	"crypto/tls"
	"testing"

	"github.com/nats-io/nats.go"

	"muster/internal/wire"
	"muster/provisioner/broker"
)

// TestAuthoritiesChangeWhileTheBrokerRuns has it accept nodes of one authority,
// of two, and of the other alone. Connections that exist go on.
func TestAuthoritiesChangeWhileTheBrokerRuns(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	other := newAuthority(t)
	ours, theirs := s.ca.issue(t, wire.RoleNode, "web1.example.net"), other.issue(t, wire.RoleNode, "web2.example.net")
	admitted := func(cert tls.Certificate) bool {
		t.Helper()
		name := wire.NewID()
		nc, err := nats.Connect(s.URL(), nats.Name(name), nats.CustomInboxPrefix(wire.InboxPrefix(name)), nats.NoReconnect(),
			nats.Timeout(patience), s.mutual(cert))
		if err == nil {
			// In TLS 1.3 the client is done before the server has looked.
			err = nc.Flush()
			nc.Close()
		}
		return err == nil
	}
	if !admitted(ours) || admitted(theirs) {
		t.Error("at first: want only our own")
	}
	stays, _ := s.client(t, s.mutual(ours))
	both := s.ca.pool()
	both.AddCert(other.cert)
	s.SetClientCAs(both)
	if !admitted(ours) || !admitted(theirs) {
		t.Error("with both authorities: want both")
	}
	s.SetClientCAs(other.pool())
	if admitted(ours) || !admitted(theirs) {
		t.Error("with the other authority alone: want only its own")
	}
	if err := stays.Flush(); err != nil {
		t.Errorf("the connection from before: %v", err)
	}
}

// TestABrokerWithoutACertificate serves clients without TLS, and the others as
// soon as it has one.
func TestABrokerWithoutACertificate(t *testing.T) {
	t.Parallel()
	var shown tls.Certificate
	s := newSite(t, func(c *broker.Config) { shown, c.Certificate = c.Certificate, tls.Certificate{} })
	plain, _ := s.client(t, nats.Token(goodToken))
	if err := plain.Flush(); err != nil {
		t.Errorf("without TLS: %v", err)
	}
	roots := nats.Secure(&tls.Config{RootCAs: s.ca.pool(), ServerName: "127.0.0.1"})
	if nc, err := nats.Connect(s.URL(), nats.Name(wire.NewID()), nats.NoReconnect(), nats.Token(goodToken), nats.Timeout(patience), roots); err == nil {
		nc.Close()
		t.Error("TLS without a certificate")
	}
	s.SetCertificate(shown)
	secure, _ := s.client(t, nats.Token(goodToken), roots)
	if err := secure.Flush(); err != nil {
		t.Errorf("with TLS: %v", err)
	}
}
