package provisioner_test

import (
	"slices"
	"testing"
	"time"

	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
)

// minOfferAge equals the unexported one.
const minOfferAge = 2 * time.Minute

// renewOver renews to a new key without a connection, which would take most of the test's time.
func renewOver(t *testing.T, f *testbed.Fleet, by, next *simnode.Node) (*wire.Enrolled, *provisioner.Refusal) {
	t.Helper()
	e, err := f.Daemon().Operator().Renew(f.Context(), must(by.Renewal(next))(t),
		provisioner.Source{Node: wire.Identity(by.Identity)})
	if err == nil {
		return e, nil
	}
	r, ok := err.(*provisioner.Refusal) //nolint:errorlint // as documented
	if !ok {
		t.Fatal(err)
	}
	return nil, r
}

// TestNoCertificateEscapesTheCRL renews as fast as possible until refused, and writes the record until its first
// revisions are gone.
func TestNoCertificateEscapesTheCRL(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n, first := provisioned(f, web1)
	serials := []string{first.Serial}
	for i := 0; ; i++ {
		next := f.Successor(n)
		e, refused := renewOver(t, f, n, next)
		if refused != nil && refused.After <= minOfferAge {
			f.Clock.Advance(refused.After)
			continue
		}
		if refused != nil {
			if refused.Code != wire.CodeBusy {
				t.Fatal(refused)
			}
			break
		}
		if serials = append(serials, e.Serial); len(serials) > 80 {
			t.Fatal("nothing bounds the certificates of a node")
		}
		switch i % 3 {
		case 0:
			f.AppliedOverFleet(next, e)
			n = next
		case 1:
			f.Clock.Advance(minOfferAge)
		}
	}
	if r := f.Record(web1); len(r.Superseded) < 60 {
		t.Errorf("%d superseded certificates, want nearly all of %d", len(r.Superseded), len(serials))
	}
	for range 70 {
		f.PutRecord(web1, func(r *provisioner.Record) { r.Attempt = wire.NewID() })
	}
	f.Revoke(web1)
	f.Eventually("every certificate is on the CRL", func() bool {
		return !slices.ContainsFunc(serials, func(s string) bool { return !f.OnCRL(s) })
	})
	f.Check()
}
