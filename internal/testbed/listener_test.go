package testbed

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/internal/simnode"
	"muster/jwt"
	"muster/server"
)

// TestAListenerLearnsNothing records every byte of enrollments of a real agent and a simulated node, and searches for
// secrets. In plain mode it must find them.
func TestAListenerLearnsNothing(t *testing.T) {
	t.Parallel()
	for name, sealed := range map[string]bool{"plain": false, "sealed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			facts := filepath.Join(t.TempDir(), "facts.json")
			f := New(t, Options{Agent: func(c *server.Config) { c.FactsFile = facts }})
			if err := os.WriteFile(facts, []byte(`{"rack":"marker-in-the-agents-facts"}`), 0o600); err != nil {
				t.Fatal(err)
			}
			p := f.Proxy()
			token := f.Token(func(c *jwt.Claims) {
				c.Brokers, c.Username, c.Password = p.URL(), "broker-user", "password-for-the-broker"
				if sealed {
					f.Seal(c)
				}
			})
			a := f.Agent("web1.example.net", token)
			n, err := simnode.New("web2.example.net", token)
			if err != nil {
				t.Fatal(err)
			}
			n.Facts = Facts(t, map[string]string{"rack": "marker-in-the-nodes-facts"})
			nc, err := simnode.Dial(p.URL(), token)
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			reply, err := simnode.Enroll(f.Context(), nc, n.Request())
			if err != nil || reply.Enrolled == nil {
				t.Fatalf("enroll: %+v, %v", reply, err)
			}
			confirmation, err := n.Confirm(reply.Enrolled)
			if err != nil {
				t.Fatal(err)
			}
			if r, err := simnode.Apply(f.Context(), nc, confirmation); err != nil || r.Applied == nil {
				t.Fatalf("applied: %+v, %v", r, err)
			}
			f.WaitProvisioned(a)

			parts := strings.Split(token, ".")
			secrets := map[string][]byte{
				"the token":             []byte(token),
				"the token's header":    decode64(t, parts[0]),
				"the token's claims":    decode64(t, parts[1]),
				"its signature":         decode64(t, parts[2]),
				"the shared secret":     []byte(Secret),
				"the broker's password": []byte("password-for-the-broker"),
				"the agent's name":      []byte(a.Identity),
				"the node's name":       []byte(n.Identity),
				"the agent's facts":     []byte("marker-in-the-agents-facts"),
				"the node's facts":      []byte("marker-in-the-nodes-facts"),
				"the node's request":    n.CSR,
				"a pushed value":        []byte(Setting),
				"the serial":            []byte(reply.Enrolled.Serial),
				"the agent's boot":      []byte(f.Record(a.Identity).Boot),
			}
			for _, identity := range []string{a.Identity, n.Identity} {
				der := f.Record(identity).Current.DER
				leaf, err := x509.ParseCertificate(der)
				if err != nil {
					t.Fatal(err)
				}
				secrets["the certificate of "+identity], secrets["the public key of "+identity] = der,
					leaf.RawSubjectPublicKeyInfo
			}
			wire := append(p.Recorded(FromNode), p.Recorded(FromBroker)...)
			for what, secret := range secrets {
				switch found := onTheWire(wire, secret); {
				case sealed && found != "":
					t.Errorf("%s is on the wire, as %s", what, found)
				case !sealed && found == "":
					t.Errorf("%s is not found in plain mode, so it would not be found in sealed mode either", what)
				}
			}
			if got := bytes.Contains(wire, []byte("muster-sealed-v1.")); got != sealed {
				t.Errorf("a sealed token on the wire: %v", got)
			}
			f.Check()
		})
	}
}

// decode64 decodes a part of a token.
func decode64(t *testing.T, s string) []byte {
	t.Helper()
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// onTheWire returns the encoding in which a piece of secret is in wire, or "". It searches for pieces of up to 24
// bytes: raw, in hexadecimal, and in both alphabets of base64 at each of the three offsets.
func onTheWire(wire, secret []byte) string {
	const piece = 24
	for i := 0; i == 0 || i+piece <= len(secret); i += piece / 2 {
		b := secret[i:min(i+piece, len(secret))]
		forms := map[string]string{"bytes": string(b), "hex": hex.EncodeToString(b)}
		for shift := range 3 {
			whole := b[shift : shift+(len(b)-shift)/3*3]
			forms["base64"], forms["base64url"] = base64.StdEncoding.EncodeToString(whole),
				base64.URLEncoding.EncodeToString(whole)
			for form, text := range forms {
				if len(text) >= 8 && bytes.Contains(wire, []byte(text)) {
					return form
				}
			}
		}
	}
	return ""
}
