package policies_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"muster/policies"
)

// Policies get the facts that they look at, however they do. Each rule holds
// only if the facts that it needs are there.
func TestPolicySeesItsFacts(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"by name":              `allow := input.facts.role == "web"`,
		"by text":              `allow := input["facts"]["role"] == "web"`,
		"below a name":         `allow := input.facts.disk.size == 10`,
		"several":              `allow if { input.facts.role == "web"; input.facts.rack == 4 }`,
		"by another fact":      `allow := input.facts[input.facts.key] == "web"`,
		"by what else is said": `allow := input.facts[input.identity] == "own"`,
		"by a variable":        `allow if { some name in ["role"]; input.facts[name] == "web" }`,
		"all names":            `allow if { some name, _ in input.facts; name == "rack" }`,
		"all values":           `allow if "web" in input.facts`,
		"how many":             `allow := count(input.facts) == 5`,
		"under another name":   "allow if f.role == \"web\"\nf := input.facts",
		"through a function":   "allow if f(input)\nf(x) if x.facts.role == \"web\"",
		"of the whole input":   `allow if { x := input; x.facts.role == "web" }`,
		"by a member's name":   `allow if { some m in ["facts"]; input[m].role == "web" }`,
		"with a default":       `allow := object.get(input.facts, "role", "") == "web"`,
		"with a path":          `allow := object.get(input, ["facts", "role"], "") == "web"`,
		"walked":               `allow if { walk(input, [path, value]); path == ["facts", "role"]; value == "web" }`,
		"encoded":              `allow := contains(json.marshal(input), "\"web\"")`,
		"in a comprehension":   `allow := [r | r := input.facts.role] == ["web"]`,
		"in every":             `allow if every x in ["web"] { x == input.facts.role }`,
		"in an object":         `allow := {"a": input.facts.role}.a == "web"`,
		"in a call":            `allow := upper(input.facts.role) == "WEB"`,
		"in a head":            "allow if is[\"web\"]\nis[input.facts.role] := true",
		"within a head":        "allow if is.a.web.own.b\nis.a[input.facts.role][input.facts[input.identity]].b := true",
		"in a head's set":      "allow if \"web\" in is.a\nis.a contains input.facts.role",
		"in place of another":  "allow if f with data.muster.enroll.x as input.facts.role\nf if x == \"web\"\nx := \"\"",
		"by a filter":          `allow if json.filter(input, ["facts/role"]) == {"facts": {"role": "web"}}`,
		"in an else":           "allow := false if input.facts.missing\nelse := input.facts.role == \"web\"",
		"in a default's place": "default allow := false\nallow if not missing\nmissing if input.facts.role != " +
			"\"web\"\nmissing if not input.facts.role",
		"in text": `allow := $"{input.facts.role}" == "web"`,
		"with a change": "allow if f with input.facts.role as \"db\"\nf if { input.facts.role == \"db\"; " +
			"input.facts.rack == 4 }",
		"with another input": "allow if f with input as object.union(input, {\"identity\": \"x\"})\nf if { " +
			"input.identity == \"x\"; input.facts.role == \"web\" }",
		"in another package": `allow if data.lib.web`,
		"through an import":  `allow if data.lib.web`,
	}
	libraries := map[string]string{
		"in another package": "package lib\n\nweb if input.facts.role == \"web\"\n",
		"through an import":  "package lib\n\nimport input.facts as f\n\nweb if f.role == \"web\"\n",
	}
	for name, rules := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := module(rules)
			if lib, ok := libraries[name]; ok { // only there: it may look at facts that the rule does not
				files["lib.rego"] = &fstest.MapFile{Data: []byte(lib)}
			}
			e, err := policies.Load(policies.Config{Paths: at(t, files)})
			if err != nil {
				t.Fatal(err)
			}
			in := stranger()
			in.Facts = []byte(`{"role":"web","rack":4,"disk":{"size":10},"key":"role","web1.example.net":"own"}`)
			d, err := e.Decide(t.Context(), in)
			if err != nil {
				t.Fatal(err)
			}
			if !d.Allow {
				t.Error("the policy did not see the facts that it looks at")
			}
			for _, facts := range oddFacts {
				in.Facts = []byte(facts)
				sameWhole(t, e, in)
			}
		})
	}
}

// oddFacts are facts, strict JSON as package wire has checked it, of every shape below the names that tests look at.
var oddFacts = []string{
	``, `{}`, `null`, `[]`, `{"role":"db"}`, `{"r\u006fle":"web"}`, `{"role":{"size":10}}`, `{"role":["web"]}`,
	`{"role":null,"rack":4}`, `{"disk":[{"size":10}]}`, `{"disk":"size"}`, `{"disk":{"s\u0069ze":1.0e1}}`,
	`{"disk":{"size":1e400}}`, `{"disk":{"size":123456789012345678901234567890}}`,
	`{"key":"role","role":"web"}`, `{"key":"key"}`, `{"key":["role"]}`, `{"web1.example.net":"own"}`,
	`{"rölle":"web","role":"w\ud83d\ude00"}`,
	`{"role":"web","a":{"b":[1,{"role":2}]},"rack":4.0}`,
}

// sameWhole checks that a policy decides the same whether it is given what it
// looks at or everything, and returns how.
func sameWhole(t *testing.T, e *policies.Engine, in *policies.Input) {
	t.Helper()
	some, err1 := e.Decide(t.Context(), in)
	all, err2 := e.Whole().Decide(t.Context(), in)
	if (err1 == nil) != (err2 == nil) || err1 != nil && err1.Error() != err2.Error() {
		t.Fatalf("facts %s: given what it looks at %v, given everything %v", in.Facts, err1, err2)
	}
	if diff := cmp.Diff(all, some); diff != "" {
		t.Errorf("facts %s: given everything, and what it looks at:\n%s", in.Facts, diff)
	}
}

// Policies of real fleets decide alike with all of the input and with what they
// look at of it, whatever the request is like.
func TestExamplesDecideAsWithEverything(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("../examples/policies/*/policy.rego")
	if err != nil || len(paths) == 0 {
		t.Fatalf("examples: %v, %v", paths, err)
	}
	for _, path := range append(paths, "") {
		t.Run(filepath.Base(filepath.Dir(path)), func(t *testing.T) {
			t.Parallel()
			cfg := policies.Config{Paths: builtin()}
			if path != "" {
				text, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if strings.Contains(string(text), "default allow") {
					cfg.Paths = nil
				}
				cfg.Paths = append(cfg.Paths, filepath.Dir(path))
			}
			e, err := policies.Load(cfg)
			if err != nil {
				t.Fatal(err)
			}
			for _, reason := range []string{"new", "renew", "replay", "unknown"} {
				for _, allow := range []*policies.AllowEntry{nil, {Pattern: "web*", ExpiresAt: noon}} {
					for _, facts := range oddFacts {
						in := stranger()
						in.Facts, in.Node.Reason, in.Node.Cloned, in.Allow = []byte(facts), reason, allow != nil, allow
						in.Token.Identities, in.Token.Site, in.Token.Extensions = []string{"web*"}, "ams", []byte(
							`{"environment":"production"}`)
						sameWhole(t, e, in)
					}
				}
			}
		})
	}
}
