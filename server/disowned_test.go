package server_test

import (
	"crypto/x509"
	"testing"
	"time"

	"muster/internal/wire"
	"muster/server"
)

// disowned is a fleet whose provisioner says of what it has given out that it has not, and
// whose brokers from then on take nobody whom admit does not, whose token is over.
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

// TestADisownedNodeWhoseTokenIsOverTriesItsCertificate disowns a node whose token is over by
// then. It says so once, and tries its certificate, too: once that is on record after
// all, as when the store is back that has it, nobody need come.
func TestADisownedNodeWhoseTokenIsOverTriesItsCertificate(t *testing.T) {
	t.Parallel()
	f := disowned(t, func(*x509.Certificate) bool { return false })
	cfg := f.node("web1.example.net")
	cfg.RefusedLimit = 100 * time.Millisecond
	a := f.run(cfg)
	a.await(server.EventFailed, 5)
	if n := f.countLog("enrollment failed"); n > 2 { // that it is disowned, and that brokers refuse the token
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
