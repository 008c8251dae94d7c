package provisioner_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/jwt"
)

// TestSecretsStayInside takes a fleet through every success and failure at debug level. Check looks for secrets in
// log, reports and store.
func TestSecretsStayInside(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Policy: `package muster.enroll

default allow := false

allow if regex.match("^(web|agent|denied)", input.identity)

deny contains "not this one" if startswith(input.identity, "denied")

allow if {
	startswith(input.identity, "failing")
	to_number(input.facts.private) > 0
}

allow if {
	startswith(input.identity, "parsing")
	json.unmarshal(input.facts.private)
}

allow if {
	startswith(input.identity, "timing")
	time.parse_rfc3339_ns(input.facts.private) > 0
}
`})
	const password = "open-sesame-for-the-broker"
	token := f.Token(func(c *jwt.Claims) { c.Username, c.Password = "nodes", password })
	a := f.Agent("agent.example.net", token)
	f.WaitProvisioned(a)

	n := f.Node("web1.example.net")
	n.Token = token
	f.Apply(n, f.Enroll(n))
	other := f.Node("web1.example.net")
	want := map[string]wire.Code{
		"refused.example.net": wire.CodeDenied, "denied.example.net": wire.CodeDenied,
		"failing.example.net": wire.CodePolicyFailed,
		"parsing.example.net": wire.CodePolicyFailed, "timing.example.net": wire.CodePolicyFailed,
		"broker.fleet.test": wire.CodeIdentityReserved, "not a name": wire.CodeIdentityInvalid,
	}
	for identity, code := range want {
		s := f.Node(strings.ReplaceAll(identity, " ", ""))
		s.Identity = identity
		if got := f.Refused(s); got != code {
			t.Errorf("%s = %s, want %s", identity, got, code)
		}
	}
	if code := f.Refused(other); code != wire.CodeIdentityTaken {
		t.Errorf("another key = %s, want %s", code, wire.CodeIdentityTaken)
	}
	// Requests with a damaged token, over a connection with a good one.
	conn := f.Dial(f.Token(nil))
	parts := strings.Split(token, ".")
	for _, damaged := range []string{
		parts[0] + "." + parts[1] + ".AAAA", parts[0] + "." + parts[1], parts[1], token + ".x", token[:len(token)/2],
		"x" + token, strings.ToUpper(token),
	} {
		s := f.Node("web3.example.net")
		s.Token = damaged
		if r, err := conn.RequestWithContext(f.Context(), wire.SubjectEnroll, encode(t, s.Request())); err != nil ||
			!strings.Contains(string(r.Data), "token_invalid") {
			t.Errorf("a damaged token: %v, %v", r, err)
		}
	}
	// Malformed messages around every secret.
	good, err := json.Marshal(f.Node("web4.example.net").Request())
	if err != nil {
		t.Fatal(err)
	}
	misplaced := f.Node("web5.example.net").Request()
	misplaced.Identity = token
	for _, m := range []string{
		string(good), string(encode(t, misplaced)), `{"v":1,"sealed":false,"body":` +
			string(good[:len(good)-1]) + `,"extra":"` + testbed.Fact + `"}}`,
		`{"v":2,"sealed":false,"body":` + string(good) + `}`, `{"v":1,"sealed":true,"ct":"` + parts[1] + `"}`,
		`{"v":1,"sealed":false,"body":"` + testbed.Setting + `"}`, `{"v":1,"sealed":false,"body":{"id":"` +
			token + `"}}`,
		testbed.Secret, token,
	} {
		for _, subject := range []string{wire.SubjectEnroll, wire.SubjectApplied} {
			if _, err := conn.RequestWithContext(f.Context(), subject, []byte(m)); err != nil {
				t.Error(err)
			}
		}
	}
	conn.Close()
	f.Stop()
	f.Start()
	f.WaitProvisioned(a)
	f.Check()
	for where, text := range everything(f) {
		for what, secret := range map[string]string{"a broker's password": password, "a part of a token": parts[2]} {
			if strings.Contains(text, secret) {
				t.Errorf("%s is in %s", what, where)
			}
		}
	}
}

// TestARefusedTokenIsNotQuoted presents long bad tokens. The texts are short; of a foreign signer's token they have a
// fingerprint.
func TestARefusedTokenIsNotQuoted(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	const inside = "kept-in-the-token"
	long := strings.Repeat(inside+" ", 200)
	part := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	parts := strings.Split(f.Token(nil), ".")
	foreign := parts[0] + "." + parts[1] + "." + part(strings.Repeat("x", 64))
	sum := sha256.Sum256([]byte(foreign))
	conn := f.Dial(f.Token(nil))
	defer conn.Close()
	for _, text := range []string{
		part(`{"alg":"`+long+`"}`) + "." + parts[1] + "." + parts[2],
		parts[0] + "." + part(`{"jti":`+strings.Repeat("7", 5000)+`}`) + "." + parts[2],
		parts[0] + "." + part(`{"extensions":{"muster":{"identities":["`+strings.Repeat(`A","`, 1000)+`A"]}}}`) + "." +
			parts[2],
		foreign,
	} {
		n := f.Node("web1.example.net")
		n.Token = text
		r, err := conn.RequestWithContext(f.Context(), wire.SubjectEnroll, encode(t, n.Request()))
		if err != nil || !strings.Contains(string(r.Data), "token_invalid") {
			t.Errorf("a request: %v, %v", r, err)
		}
		if nc, err := simnode.Dial(f.URL(), text); err == nil {
			nc.Close()
			t.Error("a connection is let in")
		}
	}
	texts := map[string]string{}
	for line := range strings.SplitSeq(f.Log(), "\n") {
		texts["the log: "+line] = line
	}
	for _, m := range f.Stored() {
		texts[m.Subject+": "+string(m.Data)] = string(m.Data)
	}
	for where, text := range texts {
		if strings.Contains(text, "token_invalid") && (len(text) > 2048 || strings.Count(text, inside) > 3) {
			t.Errorf("%d bytes in %.400s", len(text), where)
		}
	}
	if want := fmt.Sprintf("token with SHA-256 %x", sum[:8]); strings.Count(f.Log(), want) < 2 {
		t.Errorf("the log says nowhere twice %q", want)
	}
	f.Check()
}

// encode returns a message in its wire form.
func encode(t *testing.T, m any) []byte {
	t.Helper()
	b, err := wire.Encode(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// everything is all output of a fleet, by place.
func everything(f *testbed.Fleet) map[string]string {
	all := map[string]string{"the log": f.Log()}
	for _, m := range f.Stored() {
		all[m.Subject] += string(m.Data)
	}
	return all
}
