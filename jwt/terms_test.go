package jwt_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"muster/internal/wire"
	"muster/jwt"
)

// A recalled token has everything that a policy or a helper reads, and no secret.
func TestTermsAreTheTokenWithoutItsSecrets(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	full := jwt.Claims{
		Token:           "top-secret",
		Password:        "hush-hush",
		Username:        "u",
		Brokers:         "nats://a:4222,b:4222",
		Secure:          true,
		Default:         true,
		Registration:    "/r",
		Facts:           "/f",
		Organization:    "acme",
		ProtocolV2:      true,
		AllowUpdate:     true,
		Purpose:         jwt.Purpose,
		Subject:         jwt.Purpose,
		Issuer:          "ops",
		JTI:             "<1>",
		Audience:        []string{"x"},
		IssuedAt:        at,
		NotBefore:       at,
		ExpiresAt:       at.Add(time.Hour),
		IssuerExpiresAt: at.Add(2 * time.Hour),
		TrustChain:      "chain",
		PublicKey:       "00",
		Extensions:      map[string]json.RawMessage{"environment": json.RawMessage(`"staging"`)},
		Extra:           map[string]json.RawMessage{"more": json.RawMessage(`{"a":["hid-den"]}`)},
	}
	limits := jwt.Limits{Uses: 3, Identities: []wire.Pattern{"web*.example.net"}, Site: "ams"}
	if err := full.SetLimits(limits); err != nil {
		t.Fatal(err)
	}
	tests := map[string]jwt.Verified{
		"everything": {Claims: full, Limits: limits, ID: "t1", Signer: "s1", SignerName: "ops"},
		"as little as there may be": {Claims: jwt.Claims{Organization: jwt.DefaultOrganization,
			SRVDomain: "example.net"},
			ID: "t1", Signer: "s1", SignerName: "ops"},
	}
	for name, v := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			remembered := v.Terms()
			for _, secret := range []wire.Secret{v.Token, v.Password, "hid-den"} {
				if secret != "" && strings.Contains(string(remembered), string(secret)) {
					t.Errorf("terms hold a secret: %s", remembered)
				}
			}
			got, err := jwt.Recall(v.ID, v.Signer, remembered)
			if err != nil {
				t.Fatal(err)
			}
			want := v
			want.Token, want.Password, want.Extra = "", "", nil
			if diff := cmp.Diff(&want, got, cmpopts.IgnoreUnexported(jwt.Verified{})); diff != "" {
				t.Errorf("recalled (-was +is):\n%s", diff)
			}
			if again := got.Terms(); string(again) != string(remembered) {
				t.Errorf("terms of what was recalled = %s, want %s", again, remembered)
			}
		})
	}
}
