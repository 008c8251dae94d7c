package ca_test

import (
	"crypto"
	"testing"

	"muster/provisioner/ca"
)

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
