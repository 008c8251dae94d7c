package policies_test

import (
	"bytes"
	"encoding/json"
	"errors"
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
// names decides, over any facts, what it decides when it is given all of them.
func FuzzSelectedFacts(f *testing.F) {
	for _, s := range append([]string{
		`{"role":{"b":1,"a":[2]},"other":{}}`, `{"role":1,"role":2}`, `{"Role":"x"}`, `{"role":1.50e3}`, `{"os":{"name":"x"},"os":{"kernel":1}}`,
	}, oddFacts...) {
		f.Add([]byte(s))
	}
	e := load(f, "allow := true\n\nreasons contains json.marshal(input.facts.role)\n\nreasons contains json.marshal(input.facts.disk.size)\n\n"+
		"reasons contains json.marshal(input.facts.os[input.facts.key])\n\ndeny contains \"old\" if input.facts.disk.size < 3")
	f.Fuzz(func(t *testing.T, facts []byte) {
		in := stranger()
		in.Facts = facts
		sameWhole(t, e, in)
	})
}
