package jwt_test

import (
	"crypto"
	"crypto/ed25519"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"muster/jwt"
)

// FuzzPeek checks that no text panics the decoder, that there is never a
// result beside an error, and that everything accepted says the same once it
// has been signed and read again.
func FuzzPeek(f *testing.F) {
	for _, body := range []string{goodBody, claims2019, claimsToday, `{}`, `{"exp":1.5,"aud":["a"],"x":[{}]}`, `{"aud":[],"tcM":0.4}`,
		`{"jti":"a","extensions":{"muster":{"uses":1,"identities":["*"],"site":"a"}}}`} {
		f.Add(craft(edHeader, body, withEd(edKey("signer"))))
	}
	f.Add(craft(`{"alg":"none"}`, `{}`, unsigned))
	f.Add("..")
	f.Fuzz(func(t *testing.T, text string) {
		u, err := jwt.Peek(text)
		if err != nil {
			if u != nil {
				t.Fatal("Peek returned a result along with an error")
			}
			if sentinels(err) != 1 {
				t.Fatalf("Peek error %q wraps %d of the documented errors", err, sentinels(err))
			}
			return
		}
		again, err := jwt.Sign(edKey("signer"), u.Claims)
		if err != nil {
			// Escaping may make the same claims longer than a token may be.
			if len(text) > jwt.MaxTokenBytes/6 && strings.Contains(err.Error(), "limit") {
				return
			}
			t.Fatalf("claims that Peek accepted are refused: %v", err)
		}
		u2, err := jwt.Peek(again)
		if err != nil {
			t.Fatalf("our own token is refused: %v", err)
		}
		u.Algorithm, u2.Algorithm = "", ""
		if !reflect.DeepEqual(normal(t, u), normal(t, u2)) {
			t.Fatalf("round trip: %+v became %+v", u, u2)
		}
	})
}

// FuzzVerify checks that only what a trusted key signed is accepted: the
// fuzzer has the public key and every token of the seeds, and it may not come
// up with another header or other claims under it.
func FuzzVerify(f *testing.F) {
	key := edKey("signer")
	v := verifier(f, jwt.Signer{Key: key.Public()}, jwt.Signer{Key: rsaKey().Public()}, jwt.Signer{Key: ecKey().Public()})
	for _, body := range []string{goodBody, claims2019} {
		f.Add(craft(edHeader, body, withEd(key)))
	}
	f.Add(craft(`{"alg":"ES256"}`, goodBody, withEC(ecKey())))
	f.Add(craft(`{"alg":"HS256"}`, goodBody, withHMAC(key.Public().(ed25519.PublicKey))))
	f.Fuzz(func(t *testing.T, text string) {
		got, err := v.Verify(text)
		if err != nil {
			if got != nil {
				t.Fatal("Verify returned a token along with an error")
			}
			return
		}
		if got.Token != "s3cret" && got.Token != "toomanysecrets" {
			t.Fatalf("Verify accepted claims that nobody signed: %+v", got)
		}
	})
}

// normal brings what differs in spelling only to one form: blanks and escapes
// of the JSON that Claims keep as they found it.
func normal(tb testing.TB, u *jwt.Unverified) *jwt.Unverified {
	tb.Helper()
	for _, m := range []map[string]json.RawMessage{u.Extensions, u.Extra} {
		for name, raw := range m {
			var value any
			if err := json.Unmarshal(raw, &value); err != nil {
				// A number beyond float64 stays as it is spelled.
				continue
			}
			b, err := json.Marshal(value)
			if err != nil {
				tb.Fatal(err)
			}
			m[name] = b
		}
	}
	if len(u.Extensions) == 0 {
		u.Extensions = nil
	}
	return u
}

// FuzzParseSigner checks that no file panics the decoder and that a key that
// was accepted is the same once it has been written and read again.
func FuzzParseSigner(f *testing.F) {
	for _, key := range []crypto.Signer{edKey("signer"), rsaKey(), ecKey()} {
		b, err := jwt.MarshalPublicKey(key.Public())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(hexText(edKey("signer").Public().(ed25519.PublicKey))))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := jwt.ParseSigner(b)
		if err != nil {
			if s.Key != nil {
				t.Fatal("ParseSigner returned a key along with an error")
			}
			return
		}
		again, err := jwt.MarshalPublicKey(s.Key)
		if err != nil {
			t.Fatal(err)
		}
		s2, err := jwt.ParseSigner(again)
		if err != nil {
			t.Fatalf("our own encoding is refused: %v", err)
		}
		if !s.Key.(interface{ Equal(crypto.PublicKey) bool }).Equal(s2.Key) {
			t.Fatalf("round trip: %v became %v", s.Key, s2.Key)
		}
	})
}
