package policies

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/util"
)

// A selection is the top-level facts that a policy can look at. Turning 20 KiB
// of facts into Rego's values takes longer than all the rest of a decision, and
// most policies name two or three.
type selection struct {
	all   bool
	names map[string]struct{}
}

// selectFacts finds out which facts the compiled modules of c look at: those
// named in references input.facts.<name>. A rule that uses `input` or
// `input.facts` in any other way gets them all.
func selectFacts(c *ast.Compiler) selection {
	s := selection{names: make(map[string]struct{})}
	var v *ast.GenericVisitor
	v = ast.NewGenericVisitor(func(x any) bool {
		switch x := x.(type) {
		case ast.Var:
			// Not the head of a reference, which the next case takes.
			s.all = s.all || x.Equal(ast.InputRootDocument.Value)
		case ast.Ref:
			if !x[0].Equal(ast.InputRootDocument) {
				return false
			}
			s.add(x)
			for _, operand := range x[1:] { // as in input.facts[input.facts.name]
				v.Walk(operand)
			}
			return true
		}
		return false
	})
	for _, m := range c.Modules {
		for _, r := range m.Rules {
			v.Walk(r)
		}
	}
	return s
}

// add adds what ref, which begins with input, looks at.
func (s *selection) add(ref ast.Ref) {
	if len(ref) > 1 {
		if member, ok := ref[1].Value.(ast.String); ok && member != "facts" {
			return
		}
	}
	if len(ref) > 2 {
		if name, ok := ref[2].Value.(ast.String); ok {
			s.names[string(name)] = struct{}{}
			return
		}
	}
	s.all = true
}

// value returns the selected facts as Rego's value. The facts are nil, for
// none, or must be one JSON object.
func (s selection) value(facts json.RawMessage) (ast.Value, error) {
	facts = orObject(facts)
	if s.all {
		var v any
		if err := util.UnmarshalJSON(facts, &v); err != nil {
			return nil, fmt.Errorf("facts: %w", err)
		}
		object, ok := v.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("facts are %s, want a JSON object", kind(v))
		}
		return ast.InterfaceToValue(object)
	}
	if len(s.names) == 0 {
		if !json.Valid(facts) || bytes.TrimLeft(facts, " \t\r\n")[0] != '{' {
			return nil, errors.New("facts are not a JSON object")
		}
		return ast.NewObject(), nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(facts, &members); err != nil {
		return nil, fmt.Errorf("facts: %w", err)
	}
	object := ast.NewObject()
	for name := range s.names {
		text, ok := members[name]
		if !ok {
			continue
		}
		v, err := ast.ValueFromReader(bytes.NewReader(text))
		if err != nil {
			return nil, fmt.Errorf("facts: %w", err)
		}
		object.Insert(ast.StringTerm(name), ast.NewTerm(v))
	}
	return object, nil
}
