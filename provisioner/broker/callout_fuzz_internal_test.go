package broker

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"muster/internal/wire"
)

func userOf(tb testing.TB) string {
	tb.Helper()
	k, err := nkeys.CreateUser()
	if err != nil {
		tb.Fatal(err)
	}
	public, err := k.PublicKey()
	if err != nil {
		tb.Fatal(err)
	}
	return public
}

// FuzzCallout checks that a broker gets either a code, or a user with one inbox and the two subjects of enrollment.
func FuzzCallout(f *testing.F) {
	for _, s := range []string{
		`{"nats":{"client_info":{"kind":"Client","type":"nats"},"connect_opts":{"name":"AAAAAAAAAAAAAAAAAAAAAA","auth_token":"a token"}}}`,
		`{"nats":{"client_info":{"kind":"Client","type":"websocket","host":"192.0.2.1"},"connect_opts":{"name":"*","user":"x","pass":"y","nkey":"z","sig":"w"}}}`,
		`{"nats":{"client_info":{"kind":"Leafnode","type":"nats"},"client_tls":{"certs":["x"]}}}`,
		`{"nats":{"client_info":{"kind":"Client","type":"nats"},"client_tls":{"verified_chains":[["-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"]]}}}`,
		`{"nats":{"client_info":{"kind":"Client","type":"nats"},"client_tls":{"verified_chains":[[]]}}}`, `{}`, `null`,
	} {
		f.Add([]byte(s))
	}
	c, _, header := asking(f, func() {})
	broker := header.Get("Nats-Server-Xkey")
	_, sealed, _ := asking(f, func() {})
	user := userOf(f)
	f.Add(sealed)
	f.Fuzz(func(t *testing.T, b []byte) {
		// Sealed to another key, or not at all.
		if r, err := c.open(b, broker); err == nil || r != nil || len(err.Error()) > 1000 ||
			strings.Contains(err.Error(), "\n") {
			t.Fatalf("open = %v, %v", r, err)
		}
		var r jwt.AuthorizationRequestClaims
		if json.Unmarshal(b, &r) != nil {
			return
		}
		r.UserNkey = user // every other user is refused
		p, err := presentedTo(&r)
		var text string
		if err == nil {
			text, err = c.admit(t.Context(), &r, p)
		}
		if err != nil {
			d := deny(wire.CodeDenied, err)
			if _, known := wire.Codes[d.Code]; text != "" || !known || strings.Contains(string(d.Code), "\n") {
				t.Fatalf("%q with %q: %v", text, d.Code, err)
			}
			return
		}
		u, err := jwt.DecodeUserClaims(text)
		if err != nil {
			t.Fatalf("the user is none: %v", err)
		}
		if u.Audience != AccountProvisioning || !slices.Equal(u.Sub.Allow, []string{"_INBOX." + p.Name + ".>"}) ||
			len(u.Pub.Allow) != 2 || len(p.Name) != 22 || strings.ContainsAny(p.Name, ".*> ") {
			t.Fatalf("%q was admitted: %+v", p.Name, u.Permissions)
		}
	})
}
