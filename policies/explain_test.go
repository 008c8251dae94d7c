package policies_test

import (
	"fmt"
	"strings"
	"testing"

	"muster/policies"
)

// TestExplainNamesTheRules: those that fired and those that did not, each with
// its place, and what kept the latter from it.
func TestExplainNamesTheRules(t *testing.T) {
	t.Parallel()
	e := load(t, `default allow := false

allow if {
	web
	input.facts.rack == 4
}

web if input.facts.role == "web"

web if input.facts.role == "proxy"

deny contains "db" if input.facts.role == "db"`)
	in := stranger()
	in.Facts = []byte(`{"role":"web","rack":5}`)
	got := e.Explain(t.Context(), in)
	if got.Verdict != policies.VerdictDeny || got.Err != nil || got.Decision == nil {
		t.Fatalf("Explain = %+v", got)
	}
	type want struct {
		rule   string
		line   int
		fired  bool
		failed int
	}
	for _, w := range []want{{"allow", 3, true, 0}, {"allow", 5, false, 7}, {"web", 10, true, 0}, {"web", 12, false, 12}, {"deny", 14, false, 14}} {
		found := false
		for _, r := range got.Rules {
			if r.Line == w.line && strings.HasPrefix(r.Rule, w.rule) {
				found = true
				if r.File != "p.rego" || r.Fired > 0 != w.fired || r.Failed != w.failed {
					t.Errorf("%s:%d: %+v, want fired %v, failed at %d", w.rule, w.line, r, w.fired, w.failed)
				}
			}
		}
		if !found {
			t.Errorf("%s:%d is missing: %+v", w.rule, w.line, got.Rules)
		}
	}
	in.Facts = []byte(`{"role":"web","rack":4}`)
	if got := e.Explain(t.Context(), in); got.Verdict != policies.VerdictAllow {
		t.Errorf("verdict %s, want allow", got.Verdict)
	}
	if got := load(t, `allow := to_number(input.facts.role) == 1`).Explain(t.Context(), in); got.Verdict != policies.VerdictFailed || got.Err == nil {
		t.Errorf("of a policy that fails: %+v", got)
	}
}

// TestUnknownMembersOfAnInputAreNamed has each said with its place, and what there is in that.
func TestUnknownMembersOfAnInputAreNamed(t *testing.T) {
	t.Parallel()
	const whole = "identity, token, csr, facts, node, allow, source, provisioner, evidence, time"
	many := make([]string, 12)
	for i := range many {
		many[i] = fmt.Sprintf(`"m%02d":{}`, i)
	}
	for text, want := range map[string]string{
		`{"node":{"identity":"web1.example.net"}}`: `input: unknown member "node.identity"; want state, reason, serial, cloned, provisioned_at, expires_at in node`,
		`{"identity":"web1","name":1,"facts":{"any":1},"token":{"extensions":{"any":1}},"csr":{"key":{"kind":"RSA","hash":""}},"Time":""}`: `input: unknown members "Time", "name", "csr.key.kind"; want ` + whole + `; type, hash in csr.key`,
		`{"allow":{"pattern":"*","a\nb":1}}`: `input: unknown member "allow.a\nb"; want pattern, comment, expires_at in allow`,
		`{` + strings.Join(many, ",") + `}`:  `input: unknown members "m00", "m01", "m02", "m03", "m04", "m05", "m06", "m07", "m08", "m09" and 2 more; want ` + whole,
		// and what else is wrong is said as before
		`{"identity":"web1","identity":"web2"}`: `input: not strict JSON: duplicate object member name "identity"`,
		`{"identity":"web1","time":{"x":1}}`:    `input: not strict JSON: "time" has a value of the wrong type, object`,
		`{"node":5}`:                            `input: not strict JSON: "node" has a value of the wrong type, number`,
	} {
		if _, err := policies.ParseInput([]byte(text)); err == nil || err.Error() != want {
			t.Errorf("ParseInput(%s) = %v, want %s", text, err, want)
		}
	}
}

func TestParseInput(t *testing.T) {
	t.Parallel()
	in, err := policies.ParseInput([]byte(`{"identity":"web1.example.net","facts":{"role":"web"}}`))
	if err != nil || in.Node.Reason != "new" || in.Node.State != "none" || len(in.CSR.DNSNames) != 1 || in.CSR.CommonName != in.Identity {
		t.Errorf("ParseInput = %+v, %v", in, err)
	}
	for name, text := range map[string]string{"no identity": `{}`, "a misspelling": `{"identity":"a.b","fact":{}}`, "no JSON": `x`} {
		if in, err := policies.ParseInput([]byte(text)); err == nil || in != nil {
			t.Errorf("%s: %+v, %v, want an error alone", name, in, err)
		}
	}
}
