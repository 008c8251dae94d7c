package ca

import (
	"bytes"
	"crypto"
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

// nodeRequest returns a key and what a node of that name asks for with it.
func nodeRequest(t testing.TB, name string) (key *ecdsa.PrivateKey, csr []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	csr, err = x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return key, csr
}

// asGeneral fails if a request is usual and is not what the general way reads.
// It reports whether it is usual.
func asGeneral(t testing.TB, csr []byte) bool {
	t.Helper()
	c := usualCSR(csr)
	if c == nil {
		return false
	}
	want, err := parseCSR(csr)
	if err != nil {
		t.Fatalf("usual, and the general way says %v: %x", err, csr)
	}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Fatalf("read another way (-general +usual):\n%s\n%x", diff, csr)
	}
	return true
}

// TestNodesRequestsAreUsual reads those of names of all lengths, which change the
// lengths of everything around them.
func TestNodesRequestsAreUsual(t *testing.T) {
	t.Parallel()
	for n := 1; n <= wire.MaxIdentityBytes; n++ {
		name := strings.Repeat(strings.Repeat("a", wire.MaxLabelBytes)+".", 4)[:n]
		if strings.HasSuffix(name, ".") {
			name = name[:n-2] + ".b"
		}
		if _, csr := nodeRequest(t, name); !asGeneral(t, csr) {
			t.Errorf("the request of %q, %d bytes, is not usual", name, n)
		}
	}
}

// TestAnotherByteIsNotUsual changes every byte of a request, and leaves each out
// and doubles it, once with the old signature and once with one that is right again.
func TestAnotherByteIsNotUsual(t *testing.T) {
	t.Parallel()
	key, csr := nodeRequest(t, "web1.example.net")
	_, content, _, _ := readDER(csr, tagSequence)
	info, _, _, _ := readDER(content, tagSequence)
	usual := 0
	check := func(csr []byte) {
		if asGeneral(t, csr) {
			usual++
		}
	}
	for at := range csr {
		for _, bit := range []byte{1, 0x20, 0x80, 0xff} {
			other := bytes.Clone(csr)
			other[at] ^= bit
			check(other)
		}
		check(append(bytes.Clone(csr[:at]), csr[at+1:]...))
		check(append(bytes.Clone(csr[:at+1]), csr[at:]...))
	}
	if usual > 0 {
		t.Errorf("%d changed requests are usual under their old signature", usual)
	}
	for at := range info {
		for _, bit := range []byte{1, 0x20, 0x80, 0xff} {
			other := bytes.Clone(info)
			other[at] ^= bit
			check(resign(t, key, other))
		}
	}
	if usual > 0 {
		t.Errorf("%d requests are usual, though common name and DNS name differ or the key is another", usual)
	}
}

// resign returns a request with the signature of key.
func resign(t *testing.T, key *ecdsa.PrivateKey, info []byte) []byte {
	t.Helper()
	digest := sha256.Sum256(info)
	signature, err := key.Sign(rand.Reader, digest[:], crypto.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	return signed(info, signature)
}

// FuzzUsualCSR checks that whatever is usual is what the general way reads.
func FuzzUsualCSR(f *testing.F) {
	for _, name := range []string{"a", "web1.example.net", strings.Repeat("a", 63) + "." + strings.Repeat("b", 63)} {
		_, csr := nodeRequest(f, name)
		f.Add(csr)
	}
	f.Fuzz(func(t *testing.T, csr []byte) { asGeneral(t, csr) })
}
