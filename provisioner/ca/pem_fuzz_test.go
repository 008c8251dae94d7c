package ca_test

import (
	"bytes"
	"encoding/pem"
	"errors"
	"testing"

	"muster/provisioner/ca"
)

// FuzzParseCertificates checks that no bytes panic, that there is never a list
// beside an error, and that what is accepted is the same once written again.
func FuzzParseCertificates(f *testing.F) {
	c := config(f)
	block := func(typ string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: typ, Bytes: der}) }
	root := block("CERTIFICATE", c.Root.Raw)
	f.Add(root)
	f.Add(append(bytes.Clone(root), block("CERTIFICATE", c.Issuing.Raw)...))
	f.Add(append([]byte("Certificate:\n    Data:\n"), root...))
	f.Add(append(bytes.Clone(root), "-----BEGIN CERTIFICATE-----\nAAAA\n"...))
	f.Add(block("PRIVATE KEY", []byte{1}))
	f.Add(bytes.Repeat(root, 17))
	f.Fuzz(func(t *testing.T, b []byte) {
		certificates, err := ca.ParseCertificates(b)
		if err != nil {
			if certificates != nil || !errors.Is(err, ca.ErrPEM) {
				t.Fatalf("ParseCertificates = %d, %v, want %v alone", len(certificates), err, ca.ErrPEM)
			}
			return
		}
		if n := len(certificates); n < 1 || n > 16 {
			t.Fatalf("%d certificates", n)
		}
		var again []byte
		for _, c := range certificates {
			again = append(again, block("CERTIFICATE", c.Raw)...)
			_, _ = ca.KeyType(c.PublicKey)
		}
		twice, err := ca.ParseCertificates(again)
		if err != nil || len(twice) != len(certificates) {
			t.Fatalf("our own encoding: %d of %d, %v", len(twice), len(certificates), err)
		}
		for i := range twice {
			if !twice[i].Equal(certificates[i]) {
				t.Fatalf("certificate %d became another", i)
			}
		}
	})
}
