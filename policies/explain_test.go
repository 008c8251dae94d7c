package policies_test

import (
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
