package ca_test

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"testing"

	"muster/provisioner/ca"
)

// TestPublicKeyOfACertificate reads the key of certificates of each kind.
func TestPublicKeyOfACertificate(t *testing.T) {
	t.Parallel()
	a := authority(t, nil)
	for kind, key := range keys(t) {
		for name, r := range requests() {
			r.PublicKey = key.Public()
			c, _ := issue(t, a, r)
			got, err := ca.PublicKey(c.DER)
			if err != nil || !key.Public().(interface{ Equal(crypto.PublicKey) bool }).Equal(got) {
				t.Errorf("%s with %s: %v, %v", name, kind, got, err)
			}
			for n := range c.DER {
				if got, err := ca.PublicKey(c.DER[:n]); err == nil {
					t.Fatalf("%d of %d bytes of %s with %s have the key %v", n, len(c.DER), name, kind, got)
				}
			}
		}
	}
}

// FuzzPublicKey checks that what crypto/x509 reads has the same key here.
func FuzzPublicKey(f *testing.F) {
	a := authority(f, nil)
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	for _, pub := range []crypto.PublicKey{newEC(f, elliptic.P256()).Public(), newEC(f, elliptic.P384()).Public(), ed.Public()} {
		r := requests()["node"]
		r.PublicKey = pub
		c, _ := issue(f, a, r)
		f.Add(c.DER)
	}
	f.Add([]byte{0x30, 0x80, 0, 0})
	f.Add([]byte{0x30, 0x84, 0, 0, 0, 1, 0})
	f.Fuzz(func(t *testing.T, der []byte) {
		key, err := ca.PublicKey(der)
		if err != nil {
			if key != nil {
				t.Fatal("a key beside the error")
			}
			return
		}
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return
		}
		got, err := x509.MarshalPKIXPublicKey(key)
		if err != nil {
			t.Fatal(err)
		}
		if want, err := x509.MarshalPKIXPublicKey(c.PublicKey); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("key %x, and crypto/x509 reads %x, %v", got, want, err)
		}
	})
}

// BenchmarkPublicKey is what a confirmation costs besides its signature.
func BenchmarkPublicKey(b *testing.B) {
	r := requests()["node"]
	r.PublicKey = newEC(b, elliptic.P256()).Public()
	c, err := authority(b, nil).Issue(r)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("key", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := ca.PublicKey(c.DER); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("crypto/x509", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := x509.ParseCertificate(c.DER); err != nil {
				b.Fatal(err)
			}
		}
	})
}
