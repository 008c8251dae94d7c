package policies_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/types"

	"muster/internal/wire"
	"muster/policies"
)

// A built-in function with a bug, before any policy is compiled.
var _ = func() bool {
	rego.RegisterBuiltin1(&rego.Function{
		Name: "muster.test.panic",
		Decl: types.NewFunction(types.Args(types.A), types.B),
	},
		func(_ rego.BuiltinContext, v *ast.Term) (*ast.Term, error) { panic("a bug with " + v.String()) })
	return true
}()

// TestErrorsHoldNoFacts has functions fail over a fact: the error says where and
// which, and not over what.
func TestErrorsHoldNoFacts(t *testing.T) {
	t.Parallel()
	const fact = "nobodys-business"
	for rules, want := range map[string]string{
		"allow := to_number(input.facts.x) == 1":                  "to_number",
		"allow := time.parse_rfc3339_ns(input.facts.x) > 0":       "time.parse_rfc3339_ns",
		"allow := time.parse_duration_ns(input.facts.x) > 0":      "time.parse_duration_ns",
		"allow := units.parse_bytes(input.facts.x) > 0":           "units.parse_bytes",
		"allow := regex.match(input.facts.broken, input.facts.x)": "regex.match",
		"allow := base64.decode(input.facts.x) == \"\"":           "base64.decode",
		"allow := hex.decode(input.facts.x) == \"\"":              "hex.decode",
		"allow := json.unmarshal(input.facts.x) == 1":             "json.unmarshal",
		"allow := yaml.unmarshal(input.facts.broken) == 1":        "yaml.unmarshal",
		"allow := net.cidr_contains(input.facts.x, \"10.0.0.1\")": "net.cidr_contains",
		"allow := muster.test.panic(input.facts.x)":               "panic",
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			e := load(t, rules)
			in := stranger()
			in.Facts = []byte(`{"x":"` + fact + ` \"z","broken":"[` + fact + `"}`)
			d, err := e.Decide(t.Context(), in)
			if err == nil || d != nil {
				t.Fatalf("Decide = %v, %v, want an error alone", d, err)
			}
			if text := err.Error(); strings.Contains(text, fact) || !strings.Contains(text, want) {
				t.Errorf("error = %q, want %s in it and no fact", text, want)
			}
		})
	}
}

// TestSecretNamesAreRedacted has facts of one name each, some with a separator in the word: beside other secrets they
// would be inspected anyway.
func TestSecretNamesAreRedacted(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"password", "pass_word", "pass-phrase", "Pass Phrase", "PASS_WD", "Pass.word"} {
		if !policies.IsSecretName(name) {
			t.Errorf("%q is no secret's name", name)
		}
		facts, err := json.Marshal(map[string]string{name: "hunter2"})
		if err != nil {
			t.Fatal(err)
		}
		r := policies.NewRecording(&policies.Input{Identity: "web1.example.net", Facts: facts},
			&policies.Decision{Allow: true}, nil, "")
		line, err := wire.AppendJSON(nil, r)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(line), "hunter2") || !r.Redacted {
			t.Errorf("%q is recorded: %s", name, r.Input.Facts)
		}
	}
}

// TestTheChallengeIsShownToThePolicyAlone: a policy may compare it, and may by mistake quote it.
func TestTheChallengeIsShownToThePolicyAlone(t *testing.T) {
	t.Parallel()
	const challenge = "correct horse"
	e := load(t, "default allow := false\nallow if input.csr.challenge == \"other\"\n"+
		"deny contains sprintf(\"%s is wrong\", [input.csr.challenge]) if input.csr.challenge != \"\"\n"+
		"reasons contains input.csr.challenge")
	in := stranger()
	in.CSR.Challenge = challenge
	in.CSR.Extensions = map[string]string{"pp_role": "web", "pp_preshared_key": challenge}
	d, err := e.Decide(t.Context(), in)
	if err != nil || len(d.Deny) != 1 || len(d.Reasons) != 1 {
		t.Fatalf("Decide = %+v, %v, want a denial", d, err)
	}
	line, err := wire.AppendJSON(nil, policies.NewRecording(in, d, nil, ""))
	if err != nil {
		t.Fatal(err)
	}
	if text := string(line) + strings.Join(append(d.Deny, d.Reasons...), ""); strings.Contains(text, challenge) ||
		!strings.Contains(text, `"pp_role":"web"`) {
		t.Errorf("recorded %s, reasons %q %q, want them without the challenge", line, d.Deny, d.Reasons)
	}
	if in.CSR.Challenge != challenge || in.CSR.Extensions["pp_preshared_key"] != challenge {
		t.Errorf("the recording changed the input: %+v", in.CSR)
	}
	if back, err := policies.ParseRecording(line); err != nil || !back.Redacted {
		t.Errorf("ParseRecording = %+v, %v, want it marked", back, err)
	}
}
