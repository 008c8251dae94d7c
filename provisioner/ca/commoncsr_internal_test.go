package ca

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/internal/wire"
)

// isUsual reports whether the fast path reads a request, and compares it with the general one.
func isUsual(t *testing.T, csr []byte) bool {
	t.Helper()
	c := parseCommonCSR(csr)
	if c == nil {
		return false
	}
	want, err := parseCSR(csr)
	if diff := cmp.Diff(want, c); err != nil || diff != "" {
		t.Fatalf("read another way: %v (-general +usual):\n%s\n%x", err, diff, csr)
	}
	return true
}

// TestFastPathReadsCSRAsTheGeneralOne varies the name's length, and changes, drops or doubles each byte under an
// old and a new signature.
func TestFastPathReadsCSRAsTheGeneralOne(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	var csr []byte
	for n := 1; n <= wire.MaxIdentityBytes; n++ {
		name := strings.Repeat(strings.Repeat("a", wire.MaxLabelBytes)+".", 4)[:n]
		if strings.HasSuffix(name, ".") {
			name = name[:n-2] + ".b"
		}
		template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}}
		if csr, err = x509.CreateCertificateRequest(rand.Reader, template, key); err != nil || !isUsual(t, csr) {
			t.Errorf("the request of %q, %d bytes, is not usual: %v", name, n, err)
		}
	}
	_, content, _, _ := readDER(csr, tagSequence)
	info, _, _, _ := readDER(content, tagSequence)
	for at := range csr {
		changed := [][]byte{
			append(bytes.Clone(csr[:at]), csr[at+1:]...),
			append(bytes.Clone(csr[:at+1]), csr[at:]...),
		}
		for _, bit := range []byte{1, 0x20, 0x80, 0xff} {
			other := bytes.Clone(csr)
			other[at] ^= bit
			changed = append(changed, other)
			if at < len(info) {
				other := bytes.Clone(info)
				other[at] ^= bit
				digest := sha256.Sum256(other)
				signature, err := ecdsa.SignASN1(rand.Reader, key, digest[:])
				if err != nil {
					t.Fatal(err)
				}
				changed = append(changed, signed(other, signature))
			}
		}
		for _, c := range changed {
			if isUsual(t, c) {
				t.Errorf("changed at byte %d, and usual: %x", at, c)
			}
		}
	}
}
