package jwt_test

import (
	"crypto"
	"errors"
	"testing"

	"muster/jwt"
)

// FuzzParsePrivateKey checks that no file panics the reader of keys, that there
// is never a key beside an error, and that a key is the same once written again.
func FuzzParsePrivateKey(f *testing.F) {
	for _, key := range []crypto.Signer{edKey("signer"), rsaKey(), ecKey()} {
		b, err := jwt.MarshalPrivateKey(key, nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(hexText(edKey("signer").Seed())))
	locked, err := jwt.MarshalPrivateKey(edKey("signer"), []byte("hunter2"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(locked)
	f.Fuzz(func(t *testing.T, b []byte) {
		key, err := jwt.ParsePrivateKey(b, nil)
		if err != nil {
			if key != nil || !errors.Is(err, jwt.ErrKey) && !errors.Is(err, jwt.ErrPassphrase) {
				t.Fatalf("ParsePrivateKey = %v, %v", key, err)
			}
			return
		}
		again, err := jwt.MarshalPrivateKey(key, nil)
		if err != nil {
			t.Fatal(err)
		}
		twice, err := jwt.ParsePrivateKey(again, nil)
		if err != nil || !key.Public().(interface{ Equal(crypto.PublicKey) bool }).Equal(twice.Public()) {
			t.Fatalf("round trip: %v, %v", twice, err)
		}
	})
}
