package provisioner_test

import (
	"crypto/x509"
	"encoding/pem"
	"testing"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
)

// verifies reports why what a node was given does not verify: its certificate
// against the roots that came with it.
func verifies(t *testing.T, e *wire.Enrolled) error {
	t.Helper()
	parse := func(text string) (all []*x509.Certificate) {
		for block, rest := pem.Decode([]byte(text)); block != nil; block, rest = pem.Decode(rest) {
			c, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, c)
		}
		return all
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	for _, c := range parse(e.CA) {
		if wire.SelfSigned(c) {
			roots.AddCert(c)
		}
	}
	chain := parse(e.Certificate)
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err
}

// TestTheAuthorityIsRolledOverUnderOneOfTwoProvisioners has a node's request
// come to a provisioner with the new authority, and once more to one that has not been
// restarted yet.
func TestTheAuthorityIsRolledOverUnderOneOfTwoProvisioners(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Servers: 1})
	behind := f.AddProvisioner("p2")
	f.Roll()
	n := f.Node(web1)
	first, err := f.Daemon().Operator().Enroll(f.Context(), n.Request(), provisioner.Source{})
	if err != nil {
		t.Fatal(err)
	}
	if err := verifies(t, first); err != nil {
		t.Fatal(err)
	}
	second, err := behind.Daemon.Operator().Enroll(f.Context(), n.Request(), provisioner.Source{})
	if err == nil {
		if err := verifies(t, second); err != nil {
			t.Errorf("what the other one answered does not verify: %v", err)
		}
	} else {
		t.Logf("the other one: %v", err)
	}
	confirmation, err := n.Confirm(first)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Daemon().Operator().Applied(f.Context(), confirmation, provisioner.Source{}); err != nil {
		t.Errorf("the confirmation of the first answer: %v", err)
	}
}
