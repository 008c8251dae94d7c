package ca

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/asn1"
	"errors"
	"fmt"
	"io"
	"math/big"
	"testing"
)

// newSigner returns a signer with a new key, and the key.
func newSigner(t testing.TB) (*p256Signer, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s := newP256Signer(key, &key.PublicKey)
	if s.d == nil {
		t.Fatal("the signer has no copy of its key")
	}
	return s, key
}

// TestMadeIsWhatVerifies changes signatures in all places and compares what is
// said of them with and without the private key.
func TestMadeIsWhatVerifies(t *testing.T) {
	t.Parallel()
	s, key := newSigner(t)
	n := elliptic.P256().Params().N
	digest := sha256.Sum256([]byte("message"))
	good, err := key.Sign(rand.Reader, digest[:], crypto.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	var sig struct{ R, S *big.Int }
	if _, err := asn1.Unmarshal(good, &sig); err != nil {
		t.Fatal(err)
	}
	encode := func(r, s *big.Int) []byte {
		b, err := asn1.Marshal(struct{ R, S *big.Int }{r, s})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	neg := func(x *big.Int) *big.Int { return new(big.Int).Sub(n, x) }
	plus := func(x *big.Int, y int64) *big.Int { return new(big.Int).Add(x, big.NewInt(y)) }
	signatures := map[string][]byte{
		"good": good, "its other s": encode(sig.R, neg(sig.S)), "none": nil, "another r": encode(plus(sig.R, 1), sig.S), "another s": encode(sig.R, plus(sig.S, 1)),
		"r and s": encode(sig.S, sig.R), "r of 0": encode(big.NewInt(0), sig.S), "s of 0": encode(sig.R, big.NewInt(0)), "r of n": encode(n, sig.S), "s of n": encode(sig.R, n),
		"r above n": encode(new(big.Int).Add(sig.R, n), sig.S), "s above n": encode(sig.R, new(big.Int).Add(sig.S, n)), "negative": encode(sig.R, new(big.Int).Neg(sig.S)),
		"-r": encode(neg(sig.R), sig.S), "data behind": append(good[:len(good):len(good)], 0), "data inside": der(tagSequence, good[2:], []byte{2, 1, 1}),
	}
	for i := range good {
		for _, bit := range []byte{1, 0x80} {
			b := bytes.Clone(good)
			b[i] ^= bit
			signatures[fmt.Sprintf("bit %#x of byte %d", bit, i)] = b
		}
	}
	passed := 0
	for name, b := range signatures {
		want := ecdsa.VerifyASN1(&key.PublicKey, digest[:], b)
		if got := s.made(digest, b); got != want {
			t.Errorf("%s: made %v, verifies %v", name, got, want)
		}
		if want {
			passed++
		}
	}
	if passed != 2 {
		t.Errorf("%d signatures verify, want the good one and its other s", passed)
	}
	if other := sha256.Sum256([]byte("another")); s.made(other, good) {
		t.Error("the signature is taken for another message's")
	}
	for range 200 {
		_, _ = rand.Read(digest[:])
		sig, err := key.Sign(rand.Reader, digest[:], crypto.SHA256)
		if err != nil {
			t.Fatal(err)
		}
		if !s.made(digest, sig) {
			t.Fatalf("signature %x of %x with key %x is not recognized", sig, digest, s.d)
		}
	}
}

// opaque is a key that does not give itself away, as in an HSM.
type opaque struct {
	crypto.Signer
	sign func(crypto.Signer, []byte) ([]byte, error)
}

func (o opaque) Sign(_ io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	if o.sign != nil {
		return o.sign(o.Signer, digest)
	}
	return o.Signer.Sign(rand.Reader, digest, opts)
}

// TestNoFaultySignatureLeaves damages the key in each place where there is a
// copy of it.
func TestNoFaultySignatureLeaves(t *testing.T) {
	t.Parallel()
	s, key := newSigner(t)
	_, other := newSigner(t)
	flipped := func(_ crypto.Signer, digest []byte) ([]byte, error) {
		return other.Sign(rand.Reader, digest, crypto.SHA256)
	}
	tests := map[string]struct {
		signer *p256Signer
		want   error
	}{
		"sound":                       {s, nil},
		"key in hardware":             {newP256Signer(opaque{Signer: key}, &key.PublicKey), nil},
		"the copy is damaged":         {&p256Signer{key: key, pub: &key.PublicKey, d: new(big.Int).Xor(s.d, big.NewInt(1<<40))}, nil},
		"the key is damaged":          {&p256Signer{key: opaque{key, flipped}, pub: &key.PublicKey, d: s.d}, errSigned},
		"the hardware signs wrongly":  {newP256Signer(opaque{key, flipped}, &key.PublicKey), errSigned},
		"key of another certificate":  {newP256Signer(other, &key.PublicKey), errSigned},
		"the copy is damaged as well": {&p256Signer{key: opaque{key, flipped}, pub: &key.PublicKey, d: big.NewInt(1)}, errSigned},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			message := []byte("message of " + name)
			signature, err := tt.signer.sign(message)
			if !errors.Is(err, tt.want) || (err != nil) != (signature == nil) {
				t.Fatalf("sign = %x, %v, want %v", signature, err, tt.want)
			}
			if digest := sha256.Sum256(message); err == nil && !ecdsa.VerifyASN1(&key.PublicKey, digest[:], signature) {
				t.Error("the signature does not verify")
			}
		})
	}
}

// TestSignaturesOfAKeyInMemoryAreDeterministic signs as in RFC 6979, appendix A.2.5
// (P-256, SHA-256, message "sample").
func TestSignaturesOfAKeyInMemoryAreDeterministic(t *testing.T) {
	t.Parallel()
	number := func(digits string) *big.Int {
		n, ok := new(big.Int).SetString(digits, 16)
		if !ok {
			t.Fatal(digits)
		}
		return n
	}
	key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), number("C9AFA9D845BA75166B5C215767B1D6934E50C3DB36E89B127B8A622B120F6721").Bytes())
	if err != nil {
		t.Fatal(err)
	}
	signature, err := newP256Signer(key, &key.PublicKey).sign([]byte("sample"))
	if err != nil {
		t.Fatal(err)
	}
	r, s, ok := parseSignature(signature)
	if !ok {
		t.Fatalf("signature %x cannot be read", signature)
	}
	if want := number("EFD48B2AACB6A8FD1140DD9CD45E81D69D2C877B56AAF991C34D0EA84EAF3716"); r.Cmp(want) != 0 {
		t.Errorf("r = %X, want %X", r, want)
	}
	if want := number("F7CB1C942D657C41D436C7A1B6E29F65F3E900DBB9AFF4064DC4AB2F843ACDA8"); s.Cmp(want) != 0 {
		t.Errorf("s = %X, want %X", s, want)
	}
}
