package testbed_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner/ca"
)

// member enrolls a node and confirms.
func member(t *testing.T, f *testbed.Fleet, name string) (*simnode.Node, *wire.Enrolled) {
	t.Helper()
	n := f.Node(name)
	e := f.Enroll(n)
	if r := f.Apply(n, e); r.Applied == nil {
		t.Fatalf("%s: confirmation: %+v", name, r.Refusal)
	}
	return n, e
}

// crlFile returns the expected file of all CRLs.
func crlFile(f *testbed.Fleet) []byte {
	var text []byte
	for _, c := range f.Daemon().CRLs() {
		text = append(text, ca.EncodeCRL(c.DER)...)
	}
	return text
}

// Nodes of the old authority and the new one are revoked: each is on its own issuer's CRL only; openssl refuses it by
// the file of both, and so does the gate.
func TestEachIssuerHasItsRevocations(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	oldNode, oldCert := member(t, f, "old1.example.net")
	_, oldGood := member(t, f, "old2.example.net")
	before := f.Daemon().CRLs()[0]
	f.Roll()
	newNode, newCert := member(t, f, "new1.example.net")
	_, newGood := member(t, f, "new2.example.net")

	all := f.Daemon().CRLs()
	if len(all) != 2 || all[0] != f.Daemon().CRLs()[0] || all[0].Issuer == before.Issuer ||
		all[1].Issuer != before.Issuer || all[1].Number < before.Number {
		t.Fatalf("%d CRLs, want the new issuer's, and then CRL %d of %s or one after it", len(all), before.Number,
			before.Issuer)
	}
	f.Revoke(oldNode.Identity)
	f.Revoke(newNode.Identity)
	f.Eventually("each is on the CRL of its issuer", func() bool {
		return f.OnCRLOf(all[1].Issuer, oldCert.Serial) && f.OnCRLOf(all[0].Issuer, newCert.Serial)
	})
	if f.OnCRLOf(all[0].Issuer, oldCert.Serial) || f.OnCRLOf(all[1].Issuer, newCert.Serial) {
		t.Error("one is on the other's CRL")
	}
	if got := f.Daemon().CRLs(); got[1].Number <= all[1].Number || got[0].Number <= all[0].Number {
		t.Errorf("numbers %d and %d follow %d and %d", got[0].Number, got[1].Number, all[0].Number, all[1].Number)
	}
	path := filepath.Join(f.Dir, "data/crl.pem")
	f.Eventually("the file has both, the new one first", func() bool {
		b, err := os.ReadFile(path)
		return err == nil && bytes.Equal(b, crlFile(f))
	})
	dir := t.TempDir()
	file := func(name string, text ...string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(strings.Join(text, "")), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	roots := file("roots.pem", f.Read("ca/root.pem"), f.Read("ca-2/root.pem"))
	issuers := file("issuers.pem", f.Read("ca/issuing.pem"), f.Read("ca-2/issuing.pem"))
	for name, tt := range map[string]struct {
		e       *wire.Enrolled
		revoked bool
	}{"old": {oldCert, true}, "new": {newCert, true}, "old and good": {oldGood, false},
		"new and good": {newGood, false}} {
		out, err := exec.CommandContext(t.Context(), "openssl", "verify", "-crl_check", "-x509_strict", "-CAfile",
			roots, "-untrusted", issuers,
			"-CRLfile", path, file("leaf.pem", tt.e.Certificate)).CombinedOutput()
		if (err != nil) != tt.revoked || tt.revoked && !strings.Contains(string(out), "certificate revoked") {
			t.Errorf("%s: openssl verify: %v\n%s", name, err, out)
		}
	}
	for n, e := range map[*simnode.Node]*wire.Enrolled{oldNode: oldCert, newNode: newCert} {
		if f.Admits(n.Identity, e.Serial) {
			t.Errorf("%s is admitted", n.Identity)
		}
		if nc, err := n.DialFleet(f.URL(), e); err == nil {
			nc.Close()
			t.Errorf("%s is let in", n.Identity)
		}
	}
	f.Check()
}
