package jwt_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/jwt"
)

// The extensions are the same JSON whether a token was verified just now, is
// remembered, or was put together without being verified.
func TestExtensionsJSON(t *testing.T) {
	t.Parallel()
	for name, extensions := range map[string]map[string]json.RawMessage{
		"none": nil,
		"some": {"environment": json.RawMessage(`"staging"`), "rack": json.RawMessage(`{"row":[4,2.50]}`)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := goodClaims()
			c.Extensions = extensions
			want := ""
			if extensions != nil {
				want = `{"environment":"staging","rack":{"row":[4,2.50]}}`
			}
			key := edKey("signer")
			v, err := jwt.NewVerifier(jwt.VerifierConfig{Signers: []jwt.Signer{{Key: key.Public()}}, Now: func() time.Time { return noon }})
			if err != nil {
				t.Fatal(err)
			}
			text := sign(t, key, c)
			for _, how := range []string{"verified", "remembered"} {
				got, err := v.Verify(text)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, string(got.ExtensionsJSON())); diff != "" {
					t.Errorf("%s: -want +got\n%s", how, diff)
				}
			}
			made := jwt.Verified{Claims: c}
			if diff := cmp.Diff(want, string(made.ExtensionsJSON())); diff != "" {
				t.Errorf("not verified: -want +got\n%s", diff)
			}
		})
	}
}
