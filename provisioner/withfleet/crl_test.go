package provisioner_test

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/daemon"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/ca"
)

// crls returns every CRL that the store has kept, in order.
func crls(t *testing.T, f *testbed.Fleet) (list []provisioner.CRL) {
	t.Helper()
	conn, err := f.Daemon().Connect("crl test")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := js.Stream(f.Context(), "MUSTER_ENTRIES")
	if err != nil {
		t.Fatal(err)
	}
	for at := uint64(1); ; {
		m, err := entries.GetMsg(f.Context(), at, jetstream.WithGetMsgSubject("muster.entry.crl.*"))
		if err != nil {
			return list
		}
		var c provisioner.CRL
		if err := json.Unmarshal(m.Data, &c); err != nil {
			t.Fatal(err)
		}
		list, at = append(list, c), m.Sequence+1
	}
}

// TestProvisionersShareTheNumbersOfCRLs has three provisioners list what is
// revoked at three at once, one of which always finds that another was faster.
func TestProvisionersShareTheNumbersOfCRLs(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	ps := []*provisioner.Provisioner{f.Daemon().Operator(), another(t, f, nil), another(t, f, nil)}
	same := func() bool {
		for _, p := range ps[1:] {
			if string(p.CRL().DER) != string(ps[0].CRL().DER) {
				return false
			}
		}
		return true
	}
	if !same() || len(crls(t, f)) != 1 {
		t.Errorf("%d CRLs for three that start, want 1 for all", len(crls(t, f)))
	}
	var serials []string
	f.Faults.CRLs(testbed.Lost, testbed.LostAnswer)
	for i := range 6 {
		_, e := inFleet(t, f, fmt.Sprintf("web%d.example.net", i))
		serials = append(serials, e.Serial)
		if i%2 == 0 {
			// Right before ours is written, another one is.
			f.Faults.BeforeCRL(func(ctx context.Context) { overtake(t, f, ps[0].CRL()) })
		}
		if err := ps[i%3].RevokeNode(f.Context(), wire.Identity(fmt.Sprintf("web%d.example.net", i)), testbed.Operator()); err != nil {
			t.Fatal(err)
		}
	}
	for _, serial := range serials {
		f.Eventually("all are on the CRL", func() bool { return f.OnCRL(serial) })
	}
	f.Eventually("all have the same", same)
	list := crls(t, f)
	for i, c := range list[1:] {
		if c.Number <= list[i].Number {
			t.Errorf("CRL %d comes after CRL %d", c.Number, list[i].Number)
		}
	}
	f.Check()
}

// overtake signs and writes the CRL after c with the fleet's own authority, as
// another provisioner does, unless a third one was faster still.
func overtake(t *testing.T, f *testbed.Fleet, c *provisioner.CRL) {
	store := f.Daemon().Store()
	newest, revision, err := store.CRL(f.Context(), c.Issuer, 0)
	if err != nil {
		t.Error(err)
		return
	}
	next := *newest
	next.Number++
	if next.DER, err = renumbered(f, newest.DER, int64(next.Number)); err != nil {
		t.Error(err)
		return
	}
	if _, err := store.PutCRL(f.Context(), &next, revision); err != nil && !errors.Is(err, provisioner.ErrConflict) {
		t.Error(err)
	}
}

// renumbered signs what a CRL says again, under another number.
func renumbered(f *testbed.Fleet, der []byte, number int64) ([]byte, error) {
	list, err := x509.ParseRevocationList(der)
	if err != nil {
		return nil, err
	}
	certificate, err := os.ReadFile(filepath.Join(f.Dir, "ca", "issuing.pem"))
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(certificate)
	issuing, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(f.Dir, "ca", "issuing-key.pem"))
	if err != nil {
		return nil, err
	}
	key, err := jwt.ParsePrivateKey(text, nil)
	if err != nil {
		return nil, err
	}
	return x509.CreateRevocationList(rand.Reader, &x509.RevocationList{Number: big.NewInt(number), ThisUpdate: list.ThisUpdate, NextUpdate: list.NextUpdate,
		RevokedCertificateEntries: list.RevokedCertificateEntries}, issuing, key)
}

// TestTheCRLIsSignedAnewInTime moves the clock, and expects a CRL that has not
// lapsed at any time, without what has expired since.
func TestTheCRLIsSignedAnewInTime(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Edit: func(c *daemon.Config) { c.CRL.Validity = 10 * time.Hour }})
	_, e := inFleet(t, f, web1)
	first := f.Daemon().CRL()
	if got := first.NextUpdate.Sub(first.ThisUpdate); got != 10*time.Hour {
		t.Errorf("valid for %v", got)
	}
	f.Revoke(web1)
	f.Eventually("it is listed", func() bool { return f.OnCRL(e.Serial) })
	second := f.Daemon().CRL()
	f.Clock.Advance(5*time.Hour - time.Minute)
	f.Enroll(f.Node("web2.example.net")) // so that something happens meanwhile
	if got := f.Daemon().CRL(); got.Number != second.Number {
		t.Errorf("CRL %d before half of the time, want %d still", got.Number, second.Number)
	}
	f.Clock.Advance(2 * time.Minute)
	f.Eventually("a new one at half of its time", func() bool { return f.Daemon().CRL().Number > second.Number })
	if !f.OnCRL(e.Serial) {
		t.Error("the certificate fell off")
	}
	f.Check()
	// The certificate expires. It is on one CRL from after that, and then gone.
	expired := f.Record(web1).Current.NotAfter
	number := f.Daemon().CRL().Number
	f.Clock.Advance(expired.Sub(f.Clock.Now()) + time.Minute)
	f.Eventually("a new one after the end of the certificate", func() bool { return f.Daemon().CRL().Number > number })
	if !f.OnCRL(e.Serial) {
		t.Error("the certificate fell off before it was on a CRL from after its end")
	}
	f.Clock.Advance(6 * time.Hour)
	f.Eventually("it is gone", func() bool { return !f.OnCRL(e.Serial) })
	f.Check()
	// The clock goes back: what was signed is from the future.
	number = f.Daemon().CRL().Number
	f.Clock.Advance(-40 * 24 * time.Hour)
	acceptClock(t, f)
	f.Eventually("one that is valid now", func() bool { return !f.Daemon().CRL().ThisUpdate.After(f.Clock.Now()) })
	if got := f.Daemon().CRL().Number; got <= number {
		t.Errorf("CRL %d after %d", got, number)
	}
}

// TestTheCRLOutlivesItsProvisioner restarts, soon and late.
func TestTheCRLOutlivesItsProvisioner(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	_, e := inFleet(t, f, web1)
	f.Revoke(web1)
	f.Eventually("it is listed", func() bool { return f.OnCRL(e.Serial) })
	before := f.Daemon().CRL()
	f.Stop()
	f.Start()
	if got := f.Daemon().CRL(); got.Number != before.Number || string(got.DER) != string(before.DER) {
		t.Errorf("CRL %d after a restart, want %d as it was", got.Number, before.Number)
	}
	f.Stop()
	f.Clock.Advance(25 * time.Hour)
	f.Start()
	// It has served from its first moment with one that is valid.
	if got := f.Daemon().CRL(); got.Number <= before.Number || !f.Clock.Now().Before(got.NextUpdate) || !f.OnCRL(e.Serial) {
		t.Errorf("CRL %d until %v after it had lapsed", got.Number, got.NextUpdate)
	}
	f.Check()
}

// TestTheCRLIsThereForOthers has openssl judge certificates by the file beside
// the store, of a provisioner whose clock is right and of one whose is ahead.
func TestTheCRLIsThereForOthers(t *testing.T) {
	t.Parallel()
	for name, ahead := range map[string]time.Duration{"right": 0, "three minutes ahead": 3 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := testbed.New(t, testbed.Options{})
			f.Clock.Advance(ahead)
			listedForOthers(t, f)
		})
	}
}

// listedForOthers is what openssl is to say of a fleet's nodes.
func listedForOthers(t *testing.T, f *testbed.Fleet) {
	t.Helper()
	_, revoked := inFleet(t, f, web1)
	_, retired := inFleet(t, f, "web2.example.net")
	_, good := inFleet(t, f, "web3.example.net")
	f.Revoke(web1)
	f.Retire("web2.example.net")
	path := filepath.Join(f.Dir, "data/crl.pem")
	f.Eventually("the file is the newest CRL", func() bool {
		b, err := os.ReadFile(path)
		return err == nil && f.OnCRL(revoked.Serial) && f.OnCRL(retired.Serial) && string(b) == string(ca.EncodeCRL(f.Daemon().CRL().DER))
	})
	for name, tt := range map[string]struct {
		e    *wire.Enrolled
		want bool
	}{"good": {good, true}, "revoked": {revoked, false}, "retired": {retired, false}} {
		leaf := filepath.Join(t.TempDir(), "certificate.pem")
		if err := os.WriteFile(leaf, []byte(tt.e.Certificate), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), "openssl", "verify", "-crl_check", "-x509_strict", "-CAfile", filepath.Join(f.Dir, "ca/root.pem"),
			"-untrusted", filepath.Join(f.Dir, "ca/issuing.pem"), "-CRLfile", path, leaf).CombinedOutput()
		if (err == nil) != tt.want {
			t.Errorf("openssl verify of the %s one: %v\n%s", name, err, out)
		}
	}
	f.Check()
}

// TestSupersededCertificatesOfARevokedNode expects on the CRL what a node had
// before its current certificate: the disk may be from then. That of a node in
// good standing is not listed.
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
