package policies_test

import (
	"encoding/json"
	"testing"

	"muster/policies"
)

// FuzzParseInput checks that no input that a person writes panics, and that one that is
// understood is the same once it was recorded and read again: replay decides on that.
func FuzzParseInput(f *testing.F) {
	for _, s := range []string{`{"identity":"web1.example.net"}`, `{"identity":"web1.example.net","facts":{"a":[1,{"b":null}]},"csr":{"common_name":"x","dns_names":[]}}`,
		`{"identity":"a","token":{"extensions":{"x":1}},"evidence":{},"time":"2026-03-01T12:00:00Z"}`, `{"identity":"a","node":{"state":"enrolled","reason":"renew"}}`, `null`, `{"identity":1}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		in, err := policies.ParseInput(b)
		if err != nil {
			if in != nil {
				t.Fatal("an input beside the error")
			}
			return
		}
		recorded, err := json.Marshal(in)
		if err != nil {
			return // a year beyond 9999
		}
		again, err := policies.ParseInput(recorded)
		if err != nil {
			t.Fatalf("what was recorded is refused: %s: %v", recorded, err)
		}
		if twice, err := json.Marshal(again); err != nil || string(twice) != string(recorded) {
			t.Fatalf("%s became %s, %v", recorded, twice, err)
		}
	})
}
