package policies_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/policies"
)

// TestRecordedInputDecidesTheSame: another policy gets the same input from a recording, with facts that no policy
// named, and decides the same.
func TestRecordedInputDecidesTheSame(t *testing.T) {
	t.Parallel()
	e := load(t, "allow := input.facts.role == \"web\"\nconfiguration := {\"a\": \"b\"}")
	in := stranger()
	in.Facts = []byte(`{"role":"web","unnamed":{"deep":[1,2.50,"x"]}}`)
	d, err := e.Decide(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(policies.NewRecording(in, d, nil, e.Digest()))
	if err != nil {
		t.Fatal(err)
	}
	var r policies.Recording
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	if r.Verdict != policies.VerdictAllow || r.Policy != e.Digest() || r.Redacted {
		t.Errorf("recording = %+v", r)
	}
	if !strings.Contains(string(r.Input.Facts), `"unnamed":{"deep":[1,2.50,"x"]}`) {
		t.Errorf("facts = %s, want all of them", r.Input.Facts)
	}
	again, err := e.Decide(t.Context(), r.Input)
	if diff := cmp.Diff(d, again); diff != "" || err != nil {
		t.Errorf("decided again: %v, -then +now\n%s", err, diff)
	}
}

// TestRecordingHoldsNoSecrets looks for what nodes and operators may have put
// where it does not belong.
func TestRecordingHoldsNoSecrets(t *testing.T) {
	t.Parallel()
	const secret, jwt = "hunter2", "eyJhbGciOiJFZERTQSJ9.eyJpc3MiOiJtIn0.c2ln"
	for name, facts := range map[string]string{
		"by name":         `{"db_password":"hunter2"}`,
		"by another":      `{"a":[{"API-Key":"hunter2"}]}`,
		"an object":       `{"secrets":{"x":"hunter2"}}`,
		"a list":          `{"accessKeys":["hunter2"]}`,
		"escaped":         `{"pass\u0077ord":"hunter2"}`,
		"a token":         `{"cmdline":"muster --with ` + jwt + `"}`,
		"a token as name": `{"` + jwt + `":1}`,
		"a private key":   `{"note":"-----BEGIN EC PRIVATE KEY-----\nhunter2\n-----END EC PRIVATE KEY-----\n"}`,
		"half a key":      `{"note":"-----BEGIN PRIVATE KEY-----\nhunter2"}`,
	} {
		in := stranger()
		in.Facts, in.Token.Extensions = []byte(facts), []byte(facts)
		in.CSR.DNSNames = []string{"web1.example.net", jwt}
		r := policies.NewRecording(in, nil, errors.New("over "+jwt), "d")
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if !r.Redacted || strings.Contains(string(b), secret) || strings.Contains(string(b), jwt) {
			t.Errorf("%s: recorded %s", name, b)
		}
		if string(in.Facts) != facts || in.CSR.DNSNames[1] != jwt {
			t.Errorf("%s: the input itself was changed", name)
		}
	}
	in := stranger()
	in.Facts = []byte(`{"role":"web","has_token":true,"api":"v2","n":12345678901234567890}`)
	if r := policies.NewRecording(in, &policies.Decision{}, nil, "d"); r.Redacted ||
		string(r.Input.Facts) != string(in.Facts) {
		t.Errorf("nothing secret: recorded %s", r.Input.Facts)
	}
}
