package policies_test

import (
	"testing"
	"testing/fstest"

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
		"in an else":           "allow := false if input.facts.missing\nelse := input.facts.role == \"web\"",
		"in a default's place": "default allow := false\nallow if not missing\nmissing if input.facts.role != \"web\"\nmissing if not input.facts.role",
		"in text":              `allow := $"{input.facts.role}" == "web"`,
		"with a change":        "allow if f with input.facts.role as \"db\"\nf if { input.facts.role == \"db\"; input.facts.rack == 4 }",
		"with another input":   "allow if f with input as object.union(input, {\"identity\": \"x\"})\nf if { input.identity == \"x\"; input.facts.role == \"web\" }",
		"in another package":   `allow if data.lib.web`,
		"through an import":    `allow if data.lib.web`,
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
			e, err := policies.Load(policies.Config{FS: files})
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
		})
	}
}
