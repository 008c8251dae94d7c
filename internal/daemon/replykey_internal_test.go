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

// The key is replaced in time, after a clock was corrected, and not while the authority cannot issue. Each certificate is
// a provisioner's, for a week.
func TestReplyKeyIsReplacedInTime(t *testing.T) {
	t.Parallel()
	start := time.Now()
	now := start
	made, err := ca.Generate(ca.GenerateConfig{TrustDomain: "fleet.test", Name: "fleet.test"})
	if err != nil {
		t.Fatal(err)
	}
	device := &faultyKey{Signer: made.IssuingKey}
	authority, err := ca.New(ca.Config{
		Root:        made.Root,
		Issuing:     made.Issuing,
		Key:         device,
		TrustDomain: "fleet.test",
		Now:         func() time.Time { return now },
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg := DefaultConfig()
	cfg.Name = "prov1.fleet.test"
	k := cfg.newReplyKey(authority, Options{Now: func() time.Time { return now }})
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
		if err := k.sign(r, "web1.example.net", []byte("asked")); (err != nil) != tt.fails {
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
		if err != nil || role != wire.RoleProvisioner || name != cfg.Name ||
			leaf.NotAfter.Sub(leaf.NotBefore) > replyKeyLife+ca.Backdate {
			t.Errorf("%s: certificate of %s %q, %v, until %v", tt.name, role, name, err, leaf.NotAfter)
		}
		digest := wire.ReplyDigest(r, "web1.example.net", []byte("asked"))
		if err := wire.CheckSignature(leaf.PublicKey, digest, r.Signature); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}
