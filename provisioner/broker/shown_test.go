package broker_test

import (
	"bytes"
	"testing"

	"muster/provisioner/broker"
)

// TestShownIsTheCertificateOfEachServer asks a server for its certificate, with no credentials.
func TestShownIsTheCertificateOfEachServer(t *testing.T) {
	t.Parallel()
	var want []byte
	s := newSite(t, func(c *broker.Config) { want = c.Certificate.Certificate[0] })
	got, err := broker.ShownBy(s.URL(), s.tlsConfig())
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v; want the certificate of the server", len(got), err)
	}
}
