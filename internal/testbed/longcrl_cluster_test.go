package testbed_test

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/ca"
)

// retireMany writes to the log that a machine is gone which had so many certificates, and
// returns the serial of the last of them.
func retireMany(t *testing.T, f *testbed.Fleet, name string, certificates int) string {
	t.Helper()
	e := &provisioner.Revocation{
		Schema: provisioner.RevocationSchema, ID: wire.NewID(), Kind: provisioner.RetiredNode, At: f.Clock.Now().UTC().Truncate(time.Second),
		By: "operator", Node: wire.Identity(name),
	}
	issuer, serial := f.Daemon().CRL().Issuer, make([]byte, 16)
	for range certificates {
		_, _ = rand.Read(serial)
		serial[0] = serial[0]&0x7f | 0x40
		e.Certificates = append(e.Certificates, provisioner.RevokedCertificate{
			Serial: hex.EncodeToString(serial), NotAfter: e.At.Add(30 * 24 * time.Hour), Issuer: issuer,
		})
	}
	f.Eventually("it is in the log", func() bool { // in it twice it is one, and a leader may have been killed
		_, err := f.Daemon().Store().AppendRevocation(f.Context(), e)
		return err == nil
	})
	return e.Certificates[certificates-1].Serial
}

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
		last = retireMany(t, f, fmt.Sprintf("gone%d.example.net", i), each)
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
	last = retireMany(t, f, "lost.example.net", 1)
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
	last = retireMany(t, f, "back.example.net", 1)
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
