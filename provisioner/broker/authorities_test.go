package broker_test

import (
	"crypto/tls"
	"testing"

	"github.com/nats-io/nats.go"

	"muster/internal/wire"
	"muster/provisioner/broker"
)

func TestBrokerWithoutCertificateServesPlainClients(t *testing.T) {
	t.Parallel()
	var currentCertificate tls.Certificate
	s := newSite(t, func(c *broker.Config) { currentCertificate, c.Certificate = c.Certificate, tls.Certificate{} })
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
	s.SetCertificate(currentCertificate)
	secure, _ := s.client(t, nats.Token(goodToken), roots)
	if err := secure.Flush(); err != nil {
		t.Errorf("with TLS: %v", err)
	}
}
