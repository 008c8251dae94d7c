package policies_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"muster/policies"
)

// FuzzDecideFacts checks that no facts, which are foreign bytes, make the
// engine panic or decide along with an error, that facts alone change no
// decision of the built-in policy, and that what is recorded of an input is
// the same input.
func FuzzDecideFacts(f *testing.F) {
	for _, s := range []string{
		``, `{}`, `{"role":"web"}`, `{"allow":true,"deny":[]}`, `[]`, `null`, `{"a":{"a":{"a":[1,2.5e300,null,true]}}}`,
		`{"a":1,"a":2}`, `{"n":1e999999999}`, "{\"\x00\":\"\xff\"}", `{"\ud800":1}`, `{} {}`, ` {"a":-0.0} `,
	} {
		f.Add([]byte(s))
	}
	e, err := policies.Load(policies.Config{Builtin: true})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, facts []byte) {
		in := stranger()
		in.Facts = facts
		d, err := e.Decide(t.Context(), in)
		if err != nil {
			if d != nil || !errors.Is(err, policies.ErrPolicy) {
				t.Fatalf("Decide = %+v, %v, want nil, %v", d, err, policies.ErrPolicy)
			}
			return
		}
		if d.Verdict() != policies.VerdictApproval {
			t.Fatalf("facts %q made it %s", facts, d.Verdict())
		}
		b, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		var back policies.Input
		if err := json.Unmarshal(b, &back); err != nil {
			t.Fatal(err)
		}
		again, err := json.Marshal(&back)
		if err != nil || !bytes.Equal(again, b) {
			t.Fatalf("round trip: %s became %s, %v", b, again, err)
		}
	})
}

// FuzzSelectedFacts checks that a policy which is given only the facts that it
// names sees in them what one that is given all of them does. The second may
// stumble over others, such as a number too big for Rego.
func FuzzSelectedFacts(f *testing.F) {
	for _, s := range []string{
		`{"role":"web"}`, `{"role":{"b":1,"a":[2]},"other":{}}`, `{"role":1,"role":2}`, `{"rol\u0065":"x"}`, `{"Role":"x"}`, `{"role":null}`,
		`{"role":"\ud800"}`, `{"role":1.50e3}`, `{"other":1e999999999}`, `{"role":"a"} x`, "{\"role\":\"\xff\"}",
	} {
		f.Add([]byte(s))
	}
	some := load(f, "allow := true\n\nreasons contains json.marshal(input.facts.role)")
	all := load(f, "allow := true\n\nreasons contains json.marshal(facts.role)\n\nfacts := input.facts")
	f.Fuzz(func(t *testing.T, facts []byte) {
		in := stranger()
		in.Facts = facts
		a, err1 := some.Decide(t.Context(), in)
		b, err2 := all.Decide(t.Context(), in)
		if err1 != nil && err2 == nil {
			t.Fatalf("facts %q: with those named %v, with all none", facts, err1)
		}
		if err1 == nil && err2 == nil && !slices.Equal(a.Reasons, b.Reasons) {
			t.Fatalf("facts %q: with those named %q, with all %q", facts, a.Reasons, b.Reasons)
		}
	})
}
