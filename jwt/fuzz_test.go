package jwt_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"muster/jwt"
)

// FuzzPeek checks that no text causes a panic or a result beside an error, and that an accepted token keeps its
// meaning when it is signed and read again.
func FuzzPeek(f *testing.F) {
	for _, body := range []string{goodBody, claims2019, claimsToday, `{}`, `{"exp":1.5,"aud":["a"],"x":[{}]}`,
		`{"aud":[],"tcM":0.4}`,
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
			// Escapes may make the same claims longer than a token's limit.
			if len(text) > jwt.MaxTokenBytes/6 && strings.Contains(err.Error(), "limit") {
				return
			}
			t.Fatalf("claims that Peek accepted are refused: %v", err)
		}
		u2, err := jwt.Peek(again)
		if err != nil {
			t.Fatalf("our own token is refused: %v", err)
		}
		u.Algorithm, u2.Algorithm, u.Payload, u2.Payload, u.Extra = "", "", "", "", nil
		if !reflect.DeepEqual(normal(t, u), normal(t, u2)) {
			t.Fatalf("round trip: %+v became %+v", u, u2)
		}
	})
}

// normal removes differences in spelling: white space and escapes of JSON that Claims keeps unchanged.
func normal(tb testing.TB, u *jwt.Unverified) *jwt.Unverified {
	tb.Helper()
	for _, m := range []map[string]json.RawMessage{u.Extensions} {
		for name, raw := range m {
			var value any
			if err := json.Unmarshal(raw, &value); err != nil {
				// Numbers beyond float64 stay as they are.
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
