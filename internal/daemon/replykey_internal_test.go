package daemon

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"errors"
	"io"
	"testing"
	"time"

	"muster/internal/wire"
	"muster/provisioner/ca"
)

// faultyKey is the key of an authority in a device that may be gone.
type faultyKey struct {
	crypto.Signer
	gone bool
}

func (k *faultyKey) Sign(r io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	if k.gone {
		return nil, errors.New("no device")
	}
	return k.Signer.Sign(r, digest, opts)
}

// newTestReplyKey returns the reply key of a process, and the authority's key.
func newTestReplyKey(t *testing.T, now func() time.Time) (*replyKey, *faultyKey) {
	t.Helper()
	made, err := ca.Generate("fleet.test", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	device := &faultyKey{Signer: made.IssuingKey}
	authority, err := ca.New(ca.Config{
		Root:        made.Root,
		Issuing:     made.Issuing,
		Key:         device,
		TrustDomain: "fleet.test",
		Now:         now,
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg := DefaultConfig()
	cfg.Name = "prov1.fleet.test"
	return cfg.newReplyKey(authority, Options{Now: now}), device
}

// A confirmation of an own offer gets the receipt whose sum the offer had. Any other gets a signature.
func TestConfirmationsOfOwnOffersGetAReceipt(t *testing.T) {
	t.Parallel()
	own, _ := newTestReplyKey(t, time.Now)
	another, _ := newTestReplyKey(t, time.Now)
	offer := func(k *replyKey, identity, serial string) string {
		r := &wire.Reply{Enrolled: &wire.Enrolled{Serial: serial}}
		if err := k.sign(r, identity, "", nil); err != nil {
			t.Fatal(err)
		}
		return r.Enrolled.ReceiptSum
	}
	for name, tt := range map[string]struct {
		sum     string
		receipt bool
	}{
		"own offer":                 {offer(own, "web1.fleet.test", "1"), true},
		"own offer of another node": {offer(own, "web2.fleet.test", "1"), false},
		"own offer, other serial":   {offer(own, "web1.fleet.test", "2"), false},
		"offer of another process":  {offer(another, "web1.fleet.test", "1"), false},
		"sealed or older offer":     {"", false},
	} {
		r := &wire.Reply{Applied: &wire.Accepted{Serial: "1"}}
		if err := own.sign(r, "web1.fleet.test", tt.sum, nil); err != nil {
			t.Fatal(err)
		}
		switch got := r.Applied.Receipt; {
		case (got != "") != tt.receipt, (r.Signature == nil) != tt.receipt:
			t.Errorf("%s: receipt %q, signature of %d bytes", name, got, len(r.Signature))
		case got != "" && wire.Sum([]byte(got)) != tt.sum:
			t.Errorf("%s: the receipt has the sum %s, offered was %s", name, wire.Sum([]byte(got)), tt.sum)
		}
	}
}

// The key is replaced in time, after a clock was corrected, and not while the authority cannot issue. Each certificate is
// a provisioner's, for a week.
func TestReplyKeyIsReplacedInTime(t *testing.T) {
	t.Parallel()
	start := time.Now()
	now := start
	k, device := newTestReplyKey(t, func() time.Time { return now })
	var before []byte
	for _, tt := range []struct {
		name     string
		at       time.Duration
		gone     bool
		replaced bool
		fails    bool
	}{
		{name: "first", replaced: true},
		{name: "within four days", at: 96 * time.Hour},
		{name: "on the fifth day", at: 115 * time.Hour, replaced: true},
		{name: "the clock was ahead", at: time.Hour, replaced: true},
		{name: "the authority's key is gone", at: 120 * time.Hour, gone: true},
		{name: "still within the week", at: 160 * time.Hour, gone: true},
		{name: "after the week", at: 170 * time.Hour, gone: true, fails: true},
		{name: "the key is back", at: 170 * time.Hour, replaced: true},
	} {
		now, device.gone = start.Add(tt.at), tt.gone
		r := &wire.Reply{ID: "x", Installation: "i", Applied: &wire.Accepted{Serial: "1"}}
		if err := k.sign(r, "web1.example.net", "", []byte("asked")); (err != nil) != tt.fails {
			t.Fatalf("%s: sign = %v", tt.name, err)
		}
		if tt.fails {
			continue
		}
		if replaced := !bytes.Equal(r.Provisioner[0], before); replaced != tt.replaced {
			t.Errorf("%s: replaced: %t, want %t", tt.name, replaced, tt.replaced)
		}
		before = r.Provisioner[0]
		leaf, err := x509.ParseCertificate(before)
		if err != nil {
			t.Fatal(err)
		}
		role, name, err := wire.RoleOf(leaf, "fleet.test")
		if err != nil || role != wire.RoleProvisioner || name != "prov1.fleet.test" ||
			leaf.NotAfter.Sub(leaf.NotBefore) > replyKeyLife+ca.Backdate {
			t.Errorf("%s: certificate of %s %q, %v, until %v", tt.name, role, name, err, leaf.NotAfter)
		}
		digest := wire.ReplyDigest(r, "web1.example.net", []byte("asked"))
		if err := wire.CheckSignature(leaf.PublicKey, digest, r.Signature); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}
