package provisioner_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"math/big"
	"strings"
	"testing"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/ca"
)

func TestNamesAtTheLimit(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	for name, identity := range map[string]string{
		"253 bytes":         strings.Repeat(strings.Repeat("a", 62)+".", 4) + "a",
		"a label of 63":     strings.Repeat("a", 63) + ".example.net",
		"one label":         "a",
		"an encoded IDN":    "xn--wb1-bma.example.net",
		"numbers":           "1.2.3.a",
		"hyphens":           "a--b.example.net",
		"JetStream's words": "api.stream.purge",
	} {
		n := f.Node(identity)
		if r := f.Apply(n, f.Enroll(n)); r.Applied == nil {
			t.Errorf("%s: %+v", name, r.Refusal)
		}
	}
	f.Check()
}

// hugeRSA returns a public key of that many bits, without a private key.
func hugeRSA(bits uint, exponent int) *rsa.PublicKey {
	n := new(big.Int).Lsh(big.NewInt(1), bits-1)
	return &rsa.PublicKey{N: n.SetBit(n, 0, 1), E: exponent}
}

// TestAVouchingKeyIsBounded: keys whose check would take seconds are refused before use.
func TestAVouchingKeyIsBounded(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	p := f.Provisioner(nil)
	p224, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, pub := range map[string]crypto.PublicKey{
		"RSA-16384": hugeRSA(16384, 65537), "RSA of 300,000 bits": hugeRSA(300_000, 1<<31-1), "P-224": p224.Public(),
	} {
		spki, err := x509.MarshalPKIXPublicKey(pub)
		if err != nil {
			t.Fatal(err)
		}
		r := f.Node("web1.example.net").Request()
		r.Continuity = &wire.Continuity{PublicKey: spki, Signature: make([]byte, 256)}
		if k, ok := pub.(*rsa.PublicKey); ok {
			r.Continuity.Signature = make([]byte, k.Size())
			if err := wire.CheckSignature(pub, sha256.Sum256(nil), r.Continuity.Signature); !errors.Is(err,
				wire.ErrProof) || !strings.Contains(err.Error(), "limit") {
				t.Errorf("%s: CheckSignature = %v, want the limit", name, err)
			}
		}
		_, err = p.Enroll(f.Context(), r, provisioner.Source{})
		if provisioner.CodeOf(err) != wire.CodeBadRequest || !errors.Is(err, ca.ErrKey) {
			t.Errorf("%s: %v, want %s for the key", name, err, wire.CodeBadRequest)
		}
	}
	f.Check()
}
