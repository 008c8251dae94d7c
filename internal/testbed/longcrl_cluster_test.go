package testbed_test

import (
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/provisioner/ca"
)

// TestALongCRLAtACluster retires more than the store has room for in one message, at three
// servers with two provisioners: one signs the list, the other makes the same of the log, while
// a server is gone and after a restart of each, and both of a backup. What Check looks at would be
// read over and over: TestALongCRLIsInTheLog has it.
func TestALongCRLAtACluster(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	f := testbed.New(t, testbed.Options{Servers: 3})
	const name = "second.fleet.test"
	second := f.AddProvisioner(name)
	last := ""
	const machines, each = 120, 1000 // 116,000 certificates were the end once
	for i := range machines {
		last = f.RetireMany(fmt.Sprintf("gone%d.example.net", i), each, f.Clock.Now().Add(30*24*time.Hour))
	}
	// same waits until both have one list that names a certificate, and returns its number.
	same := func(what, serial string) uint64 {
		t.Helper()
		f.Eventually(what, func() bool {
			a, b := f.Daemon().CRL(), second.Daemon.CRL()
			return a != nil && b != nil && a.Number == b.Number && string(a.DER) == string(b.DER) && f.OnCRL(serial)
		})
		return f.Daemon().CRL().Number
	}
	first := same("both have the list", last)
	if n := len(f.Daemon().CRL().DER); n < 5<<20 {
		t.Errorf("a list of %d bytes, want more than the store takes", n)
	}

	killed := f.Servers()[2]
	killed.Kill()
	last = f.RetireMany("lost.example.net", 1, f.Clock.Now().Add(30*24*time.Hour))
	if n := same("both have the next one without a server", last); n <= first {
		t.Errorf("CRL %d follows %d", n, first)
	}
	second.Stop()
	second = f.AddProvisioner(name)
	same("the second one has it after its start", last)
	f.Stop()
	f.Start()
	same("so has the first", last)
	killed.Start()
	last = f.RetireMany("back.example.net", 1, f.Clock.Now().Add(30*24*time.Hour))
	before := same("both have another one with all servers", last)
	path := filepath.Join(f.Dir, "data", "crl.pem")
	f.Eventually("the file has all of it", func() bool {
		b, err := os.ReadFile(path)
		return err == nil && string(b) == string(ca.EncodeCRL(f.Daemon().CRL().DER))
	})

	file := backUp(t, f)
	second.Stop()
	f.Stop()
	loseCluster(t, f)
	r := restoring(f, file)
	r.Journals = []string{journalAt(f, name)}
	if out, err := r.Run(f.Context()); err != nil || out.Lost != "" {
		t.Fatalf("restored %+v, %v", out, err)
	}
	f.Start()
	f.Restored()
	second = f.AddProvisioner(name)
	if n := same("both have all of it after a restore", last); n < before {
		t.Errorf("CRL %d follows %d of before the restore", n, before)
	}
	list, err := x509.ParseRevocationList(f.Daemon().CRL().DER)
	if err != nil || len(list.RevokedCertificateEntries) != machines*each+2 {
		t.Errorf("a list of %d certificates, %v; want %d", len(list.RevokedCertificateEntries), err, machines*each+2)
	}
	if got := f.Ask(f.Node("web1.example.net")); got.Enrolled == nil {
		t.Errorf("a node: %+v", got.Refusal)
	}
}
