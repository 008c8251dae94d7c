package server

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http/httptest"
	"testing"
	"time"
)

// A proxy that ends TLS is accepted by its public name, or else what was wrong
// with the pin is said.
func TestOrPublic(t *testing.T) {
	t.Parallel()
	proxy := httptest.NewTLSServer(nil)
	defer proxy.Close()
	trusted := x509.NewCertPool()
	trusted.AddCert(proxy.Certificate())
	errPin := errors.New("not pinned")
	tests := map[string]struct {
		host   string
		roots  *x509.CertPool
		pinned error
		ok     bool
	}{
		"of a trusted authority": {"127.0.0.1", trusted, errPin, true},
		"for another name":       {"192.0.2.1", trusted, errPin, false},
		"of nobody's authority":  {"127.0.0.1", x509.NewCertPool(), errPin, false},
		"pinned":                 {"192.0.2.1", x509.NewCertPool(), nil, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := func(time.Time) time.Time { return time.Now() }
			verify := orPublic(func(tls.ConnectionState) error { return tt.pinned }, tt.host, tt.roots, now)
			err := verify(tls.ConnectionState{PeerCertificates: []*x509.Certificate{proxy.Certificate()}})
			if tt.ok != (err == nil) || !tt.ok && !errors.Is(err, errPin) {
				t.Errorf("verify: %v", err)
			}
		})
	}
}
