package services_test

import (
	"crypto/x509"
	"slices"
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/provisioner/events"
	"muster/provisioner/services"
)

func TestANodeGetsAServiceCertificate(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n := connected(t, f, web1)
	key := newKey(t)
	first := n.granted(n.request("https", key, "svc."+web1, web1))
	c := leaf(t, first)
	roots, chain := x509.NewCertPool(), x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(first.CA))
	chain.AppendCertsFromPEM([]byte(first.Certificate))
	if _, err := c.Verify(x509.VerifyOptions{Roots: roots, Intermediates: chain, DNSName: "svc." + web1}); err != nil {
		t.Error(err)
	}
	if c.Subject.String() != "" || len(c.URIs) != 1 || c.URIs[0].String() != "spiffe://fleet.test/service/"+web1+"/https" {
		t.Errorf("subject %q and URIs %v, want no subject and the service's URI", c.Subject, c.URIs)
	}
	if l := n.listed("https"); l.State != services.StateCurrent || l.Serial != first.Serial {
		t.Errorf("listed as %+v, want it as current", l)
	}
	// The lost reply.
	if again := n.granted(n.request("https", key, web1, "svc."+web1)); again.Serial != first.Serial {
		t.Errorf("the same key got %s, want again %s", again.Serial, first.Serial)
	}
	second := n.granted(n.request("https", newKey(t), "svc."+web1, web1))
	if second.Serial == first.Serial {
		t.Error("another key got the same certificate")
	}
	f.Clock.Advance(21 * 24 * time.Hour)
	types := []events.Type{}
	for _, e := range f.Events() {
		if e.Name == "https" {
			types = append(types, e.Type)
		}
	}
	if want := []events.Type{events.CertificateIssued, events.CertificateRenewed}; !slices.Equal(types, want) {
		t.Errorf("events %v, want %v", types, want)
	}
	f.Check()
}

func TestAClusterKeepsServiceCertificates(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	f := testbed.New(t, testbed.Options{Servers: 3})
	n := connected(t, f, web1)
	var last string
	for range 5 {
		last = n.granted(n.request("https", newKey(t), web1)).Serial
	}
	if err := f.Daemon().Services().Revoke(f.Context(), web1, "https", cause); err != nil {
		t.Fatal(err)
	}
	wantRevoked(f, last)
	f.Check()
}
