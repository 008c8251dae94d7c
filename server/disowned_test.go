package server_test

import (
	"crypto/x509"
	"testing"
	"time"

	"muster/internal/wire"
	"muster/server"
)

// disowned is a fleet whose provisioner denies having issued a certificate. Its brokers then admit only certificates
// that admit accepts, and no token.
func disowned(t *testing.T, admit func(cert *x509.Certificate) bool) *fleet {
	t.Helper()
	f := newFleet(t)
	f.set(func() {
		f.applied = func(a *wire.Applied) *wire.Reply {
			f.set(func() { f.admit = func(_ string, cert *x509.Certificate) bool { return admit(cert) } })
			return &wire.Reply{ID: a.ID, Refusal: &wire.Refusal{Code: wire.CodeNotIssued,
				Message: wire.MeaningOf(wire.CodeNotIssued).Public}}
		}
	})
	return f
}

// The node reports the problem once and also tries its certificate: it goes on without help once the certificate is
// on record again, as after the return of a store.
func TestADisownedNodeWithARefusedTokenTriesItsCertificate(t *testing.T) {
	t.Parallel()
	f := disowned(t, func(*x509.Certificate) bool { return false })
	cfg := f.node("web1.example.net")
	cfg.RefusedLimit = 100 * time.Millisecond
	a := f.run(cfg)
	a.await(server.EventFailed, 5)
	if n := f.countLog("enrollment failed"); n > 2 { // disowned, and token refused
		t.Errorf("it says %d times what keeps it out:\n%s", n, f.log.String())
	}
	f.set(func() {
		f.applied = nil
		f.admit = func(_ string, cert *x509.Certificate) bool { return cert != nil }
	})
	a.await(server.EventConfirmed, 1)
	if n := len(f.requests()); n != 1 {
		t.Errorf("%d enroll requests, want the first alone", n)
	}
}
