package policies

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Policies are given what they name and no more, and everything where what they
// look at cannot be told.
func TestSelectInput(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ rules, want string }{
		"nothing":             {`allow := true`, ""},
		"a fact":              {`allow := input.facts.role == "web"`, "input.facts.role"},
		"a fact below":        {`allow := input.facts.os.name == "linux"`, "input.facts.os.name"},
		"by texts":            {`allow := input["facts"]["os"]["name"] == "linux"`, "input.facts.os.name"},
		"two, one in another": {`allow if { input.facts.os.name; input.facts.os }`, "input.facts.os"},
		"the other way round": {`allow if { input.facts.os; input.facts.os.name }`, "input.facts.os"},
		"an element":          {`allow := input.facts.disks[0].size == 1`, "input.facts.disks"},
		"by a variable":       {`allow if { some i; input.facts.disks[i].size == 1 }`, "input.facts.disks"},
		"by another fact":     {`allow := input.facts.os[input.facts.key]`, "input.facts.key input.facts.os"},
		"all facts":           {`allow if { some k, v in input.facts; k == v }`, "input.facts"},
		"facts as a value":    {`allow := count(input.facts) == 1`, "input.facts"},
		"object.get":          {`allow := object.get(input.facts, "role", "") == "web"`, "input.facts"},
		"renamed":             {"allow if f.role\nf := input.facts", "input.facts"},
		"to a function":       {"allow if f(input.facts.os)\nf(x) if x.name", "input.facts.os"},
		"members of input": {`allow if { input.node.reason == "new"; input.csr.key.type == "P-256" }`,
			"input.csr.key.type input.node.reason"},
		"by a member's name": {`allow if { some m in ["facts"]; input[m].role }`, "input"},
		"all of input":       {`allow if { x := input; x.facts.role }`, "input"},
		"walked":             {`allow if walk(input, [_, "web"])`, "input"},
		"replaced":           {"allow if f with input as {\"identity\": \"x\"}\nf if input.facts.role", "input"},
		"replaced in part": {"allow if f with input.facts.os.name as \"x\"\nf if input.facts.role",
			"input.facts.os.name input.facts.role"},
		"without the rest": {"allow if f with input.facts as {\"role\": \"x\"}\nf if input.facts.role",
			"input.facts"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.CopyFS(dir, fstest.MapFS{
				"p.rego": {Data: []byte("package muster.enroll\n\n" + tt.rules + "\n")},
				"c.rego": {Data: []byte("package muster.certificate\n\nallow := false\n")}, // the built-in rules read more
				// What only tests look at is not selected.
				"p_test.rego": {Data: []byte(
					"package muster.enroll_test\n\ntest_input if object.get(input, \"tested\", true) with input as {}\n")},
			}); err != nil {
				t.Fatal(err)
			}
			e, err := Load(Config{Paths: []string{dir}})
			if err != nil {
				t.Fatal(err)
			}
			if got := e.current.Load().input.String(); got != tt.want {
				t.Errorf("selected %q, want %q", got, tt.want)
			}
		})
	}
}

// TestSelectionLeavesOutTheRest: what no policy names is left out, and no error shows a value.
func TestSelectionLeavesOutTheRest(t *testing.T) {
	t.Parallel()
	s := &selection{}
	for _, path := range []string{"os.name", "os.version", "räck", "list.x"} {
		var ref ast.Ref
		for name := range strings.SplitSeq(path, ".") {
			ref = append(ref, ast.StringTerm(name))
		}
		s.add(ref)
	}
	for text, want := range map[string]string{
		`{"os":{"name":"linux","kernel":"6.1"},"disks":[1,2,3]}`: `{"os":{"name":"linux"}}`,
		`{"os":{"name":"a\"b\n","version":1.50}}`:                `{"os":{"name":"a\"b\n","version":1.50}}`,
		` {"disks":[]} `:                 `{}`,
		`{"os":"linux","disks":1}`:       `{"os":"linux"}`,
		`{"list":[{"x":1,"y":2}]}`:       `{"list":[{"x":1,"y":2}]}`,
		`{"r\u00e4ck":{"a":1},"rack":2}`: `{"räck":{"a":1}}`,
	} {
		got, err := s.of([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if w := ast.MustParseTerm(want); !got.Equal(w) {
			t.Errorf("of %s is left %v, want %v", text, got, w)
		}
	}
	for _, text := range []string{`{"os":"hunter2}`, `{"os":hunter2}`, `{"os":1e999999999,"x":"hunter2"`,
		`{"a":"hunter2" "b"}`, `{"hunter2" 1}`} {
		if _, err := s.of([]byte(text)); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("of %s: %v", text, err)
		}
	}
}

// String lists what is selected.
func (s *selection) String() string {
	var paths []string
	var list func(*selection, string)
	list = func(s *selection, path string) {
		if s.whole {
			paths = append(paths, path)
			return
		}
		for name, below := range s.members {
			list(below, fmt.Sprintf("%s.%s", path, name))
		}
	}
	list(s, "input")
	slices.Sort(paths)
	return strings.Join(paths, " ")
}
