package provisioner_test

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"muster/internal/conffile"
	"muster/internal/daemon"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/ca"
)

// TestEveryProvisionerListsAllRevocations has three provisioners revoke in turn. CRL numbers grow.
func TestEveryProvisionerListsAllRevocations(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	ps := []*provisioner.Provisioner{f.Daemon().Operator(), another(t, f, nil), another(t, f, nil)}
	numbers := make([]uint64, len(ps))
	for i := range ps {
		id := fmt.Sprintf("web%d.example.net", i)
		_, e := inFleet(t, f, id)
		if err := testbed.Orders(ps[i]).Nodes.Revoke(f.Context(), wire.Identity(id), testbed.Operator()); err != nil {
			t.Fatal(err)
		}
		for k, p := range ps {
			f.Eventually("it is on the CRL of each", func() bool {
				list, err := x509.ParseRevocationList(p.CRLs().Newest().DER)
				return err == nil && slices.ContainsFunc(list.RevokedCertificateEntries,
					func(r x509.RevocationListEntry) bool {
						return r.SerialNumber.Text(16) == e.Serial
					})
			})
			if n := p.CRLs().Newest().Number; n <= numbers[k] {
				t.Errorf("provisioner %d: CRL %d after %d", k, n, numbers[k])
			} else {
				numbers[k] = n
			}
		}
	}
	f.Check()
}

// TestTheCRLIsRenewedInTime moves the clock. Expired certificates leave the CRL.
func TestTheCRLIsRenewedInTime(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Edit: func(c *daemon.Config) {
		c.CRL.Validity = conffile.Span(10 * time.Hour)
	}})
	_, e := inFleet(t, f, web1)
	first := f.Daemon().CRLs()[0]
	if got := first.NextUpdate.Sub(first.ThisUpdate); got != 10*time.Hour {
		t.Errorf("valid for %v", got)
	}
	f.Revoke(web1)
	f.Eventually("it is listed", func() bool { return f.OnCRL(e.Serial) })
	second := f.Daemon().CRLs()[0]
	f.Clock.Advance(5*time.Hour - time.Minute)
	f.Enroll(f.Node("web2.example.net")) // as an action in between
	if got := f.Daemon().CRLs()[0]; got.Number != second.Number {
		t.Errorf("CRL %d before half of the time, want %d still", got.Number, second.Number)
	}
	f.Clock.Advance(2 * time.Minute)
	f.Eventually("a new one at half of its time", func() bool { return f.Daemon().CRLs()[0].Number > second.Number })
	if !f.OnCRL(e.Serial) {
		t.Error("the certificate fell off")
	}
	f.Check()
	// An expired certificate is on one more CRL, and then gone.
	expired := f.Record(web1).Current.NotAfter
	number := f.Daemon().CRLs()[0].Number
	f.Clock.Advance(expired.Sub(f.Clock.Now()) + time.Minute)
	f.Eventually("a new one after the end of the certificate", func() bool { return f.Daemon().CRLs()[0].Number > number })
	if !f.OnCRL(e.Serial) {
		t.Error("the certificate fell off before it was on a CRL from after its end")
	}
	f.Clock.Advance(6 * time.Hour)
	f.Eventually("it is gone", func() bool { return !f.OnCRL(e.Serial) })
	f.Check()
	// The clock goes back: the CRL is from the future.
	number = f.Daemon().CRLs()[0].Number
	f.Clock.Advance(-40 * 24 * time.Hour)
	acceptClock(t, f)
	f.Eventually("one that is valid now", func() bool { return !f.Daemon().CRLs()[0].ThisUpdate.After(f.Clock.Now()) })
	if got := f.Daemon().CRLs()[0].Number; got <= number {
		t.Errorf("CRL %d after %d", got, number)
	}
}

// TestTheCRLOutlivesItsProvisioner restarts after the CRL has expired.
func TestTheCRLOutlivesItsProvisioner(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	_, e := inFleet(t, f, web1)
	f.Revoke(web1)
	f.Eventually("it is listed", func() bool { return f.OnCRL(e.Serial) })
	before := f.Daemon().CRLs()[0]
	f.Stop()
	f.Clock.Advance(25 * time.Hour)
	f.Start()
	// It serves with a valid one from the start.
	if got := f.Daemon().CRLs()[0]; got.Number <= before.Number || !f.Clock.Now().Before(got.NextUpdate) ||
		!f.OnCRL(e.Serial) {
		t.Errorf("CRL %d until %v after it had lapsed", got.Number, got.NextUpdate)
	}
	f.Check()
}

// TestOpensslReadsTheCRL checks the file of a provisioner with a right clock and of one that is ahead.
func TestOpensslReadsTheCRL(t *testing.T) {
	t.Parallel()
	for name, ahead := range map[string]time.Duration{"right": 0, "three minutes ahead": 3 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := testbed.New(t, testbed.Options{})
			f.Clock.Advance(ahead)
			opensslAccepts(t, f)
		})
	}
}

// opensslAccepts checks openssl's verdicts on a fleet's nodes.
func opensslAccepts(t *testing.T, f *testbed.Fleet) {
	t.Helper()
	_, revoked := inFleet(t, f, web1)
	_, retired := inFleet(t, f, "web2.example.net")
	_, good := inFleet(t, f, "web3.example.net")
	f.Revoke(web1)
	f.Retire("web2.example.net")
	path := filepath.Join(f.Dir, "data/crl.pem")
	f.Eventually("the file is the newest CRL", func() bool {
		b, err := os.ReadFile(path)
		return err == nil && f.OnCRL(revoked.Serial) && f.OnCRL(retired.Serial) &&
			string(b) == string(ca.EncodeCRL(f.Daemon().CRLs()[0].DER))
	})
	for name, tt := range map[string]struct {
		e    *wire.Enrolled
		want bool
	}{"good": {good, true}, "revoked": {revoked, false}, "retired": {retired, false}} {
		leaf := filepath.Join(t.TempDir(), "certificate.pem")
		if err := os.WriteFile(leaf, []byte(tt.e.Certificate), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), "openssl", "verify", "-crl_check", "-x509_strict",
			"-CAfile", filepath.Join(f.Dir, "ca/root.pem"),
			"-untrusted", filepath.Join(f.Dir, "ca/issuing.pem"), "-CRLfile", path, leaf).CombinedOutput()
		if (err == nil) != tt.want {
			t.Errorf("openssl verify of the %s one: %v\n%s", name, err, out)
		}
	}
	f.Check()
}

// TestSupersededCertificatesOfARevokedNode: a stolen disk may be older. A good node's are not listed.
func TestSupersededCertificatesOfARevokedNode(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	replace := func(name string) (first, second *wire.Enrolled) {
		n, first := inFleet(t, f, name)
		next := f.Node(name)
		r := next.Request()
		vouch(t, n, r)
		second, err := f.Daemon().Operator().Enroll(f.Context(), r, provisioner.Source{})
		if err != nil {
			t.Fatal(err)
		}
		if r := f.Apply(next, second); r.Applied == nil {
			t.Fatalf("confirmation: %+v", r.Refusal)
		}
		return first, second
	}
	first, second := replace(web1)
	other, _ := replace("web2.example.net")
	f.Revoke(web1)
	f.Eventually("both are on the CRL", func() bool { return f.OnCRL(first.Serial) && f.OnCRL(second.Serial) })
	if f.OnCRL(other.Serial) {
		t.Error("the superseded certificate of another node is listed")
	}
	for _, e := range []*wire.Enrolled{first, second} {
		block, _ := pem.Decode([]byte(e.Certificate))
		leaf, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		hash, err := ca.KeyHash(leaf.PublicKey)
		if err != nil {
			t.Fatal(err)
		}
		if f.Daemon().Operator().Revocations().Key(hash) == nil {
			t.Errorf("the key of %s is not revoked", e.Serial)
		}
	}
	f.Check()
}
