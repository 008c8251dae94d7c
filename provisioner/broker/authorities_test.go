package broker_test

import (
	"crypto/tls"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"muster/internal/wire"
	"muster/provisioner/broker"
)

func TestBrokerWithoutCertificateServesPlainClients(t *testing.T) {
	t.Parallel()
	var shown atomic.Pointer[tls.Certificate]
	s := newSite(t, func(c *broker.Config) {
		c.Certificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return shown.Load(), nil }
	})
	plain, _ := s.client(t, nats.Token(goodToken))
	if err := plain.Flush(); err != nil {
		t.Errorf("without TLS: %v", err)
	}
	roots := nats.Secure(&tls.Config{RootCAs: s.ca.pool(), ServerName: "127.0.0.1"})
	if nc, err := nats.Connect(s.URL(), nats.Name(wire.NewID()), nats.NoReconnect(), nats.Token(goodToken),
		nats.Timeout(patience), roots); err == nil {
		nc.Close()
		t.Error("TLS without a certificate")
	}
	shown.Store(s.shown.Load())
	secure, _ := s.client(t, nats.Token(goodToken), roots)
	if err := secure.Flush(); err != nil {
		t.Errorf("with TLS: %v", err)
	}
}
