package seal_test

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hpke"
	"crypto/sha256"
	"errors"
	"slices"
	"testing"

	"muster/internal/seal"
	"muster/internal/wire"
)

// handSession implements the documented session with crypto's parts only.
func handSession(t *testing.T, context interface {
	Export(label string, length int) ([]byte, error)
}) []byte {
	t.Helper()
	secret, err := context.Export("muster session v1", 32)
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

func handExpand(t *testing.T, secret []byte, label string, context []byte, length int) []byte {
	t.Helper()
	b, err := hkdf.Expand(sha256.New, secret, label+string(context), length)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// handCipher is AES-256-GCM with key and nonce from b.
func handCipher(t *testing.T, b []byte) (cipher.AEAD, []byte) {
	t.Helper()
	block, err := aes.NewCipher(b[:32])
	if err != nil {
		t.Fatal(err)
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	return gcm, b[32:44]
}

// byHand pads s, which is shorter than a block.
func byHand(s string) []byte {
	return append([]byte{0, 0, 0, byte(len(s))}, append([]byte(s), make([]byte, 252-len(s))...)...)
}

var labels = map[seal.Purpose]string{
	seal.PurposeEnroll: "muster enroll v1", seal.PurposeApplied: "muster applied v1", seal.PurposeConnect: "muster connect v1",
}

// TestIndependentImplementationInteroperates opens a request and replies by the documented format alone.
func TestIndependentImplementationInteroperates(t *testing.T) {
	t.Parallel()
	private, err := hpke.NewDHKEMPrivateKey(ecdhKey(t, "a"))
	if err != nil {
		t.Fatal(err)
	}
	for purpose, label := range labels {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			session := testSession(t, "a")
			s, opener, err := session.Seal(purpose, []byte("question"))
			if err != nil {
				t.Fatal(err)
			}
			r, err := hpke.NewRecipient(s.Encapsulated, private, hpke.HKDFSHA256(), hpke.ExportOnly(),
				[]byte("muster session v1"))
			if err != nil {
				t.Fatal(err)
			}
			secret := handSession(t, r)
			keys := handExpand(t, secret, label, s.Ciphertext[:32], 76)
			gcm, nonce := handCipher(t, keys)
			got, err := gcm.Open(nil, nonce, s.Ciphertext[32:], nil)
			if err != nil || !bytes.Equal(got, byHand("question")) {
				t.Fatalf("opened by hand = %q, %v", got, err)
			}
			proof, err := session.Prove([]byte("nonce"))
			if err != nil || !bytes.Equal(proof, handExpand(t, secret, "muster proof v1", []byte("nonce"), 32)) {
				t.Errorf("proof = %x, %v", proof, err)
			}

			salt, tag := bytes.Repeat([]byte{7}, 32), s.Ciphertext[len(s.Ciphertext)-16:]
			gcm, nonce = handCipher(t, handExpand(t, keys[44:], "muster reply v1", salt, 44))
			answer, err := opener.Open(gcm.Seal(salt[:32:32], nonce, byHand("answer"), tag))
			if err != nil || string(answer) != "answer" {
				t.Errorf("reply made by hand = %q, %v", answer, err)
			}
			if answer, err := opener.Open(gcm.Seal(salt[:32:32], nonce, padOf(wire.MaxReplyBytes+256),
				tag)); !errors.Is(err, seal.ErrOpen) {
				t.Errorf("reply above the limit = %d bytes, %v", len(answer), err)
			}

			// Under the same salt, other bytes have other reply keys: a reply is bound to its request.
			other := slices.Clone(tag)
			other[0]++
			if answer, err := opener.Open(gcm.Seal(salt[:32:32], nonce, byHand("answer"), other)); !errors.Is(err,
				seal.ErrOpen) {
				t.Errorf("reply to other bytes under the same keys = %q, %v", answer, err)
			}
		})
	}
}
