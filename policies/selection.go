package policies

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/open-policy-agent/opa/v1/ast"

	"muster/internal/wire"
)

// A selection is what of a document a policy can look at: all of it, or only
// some members, and of those again all or some. Nil is nothing. Turning 20 KiB of
// facts into Rego's values takes longer than all the rest of a decision, and most
// policies name two or three.
//
// It is never written to once it is found, so decisions side by side share it.
type selection struct {
	whole   bool
	members map[string]*selection // of an object; a value of another type is taken whole
	name    *ast.Term             // of the member that it selects, of an object of which not all is: made once
}

// selectInput finds out what of the input the compiled modules of c look at: what
// stands in references as a constant path, input.facts.os.name. Where a path
// goes on with anything but a text, or ends, everything below it is selected, and
// a rule that uses `input` on its own selects all of it. That holds for every
// way to reach the input, since all begin with such a reference: the compiler has
// put what was imported or called something else in its place.
func selectInput(c *ast.Compiler) *selection {
	s := &selection{}
	var v *ast.GenericVisitor
	v = ast.NewGenericVisitor(func(x any) bool {
		switch x := x.(type) {
		case ast.Var:
			// Not the head of a reference, which the next case takes.
			s.whole = s.whole || x.Equal(ast.InputRootDocument.Value)
		case ast.Ref:
			if !x[0].Equal(ast.InputRootDocument) {
				return false
			}
			s.add(x[1:])
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

// add selects what the operands of a reference lead to.
func (s *selection) add(operands ast.Ref) {
	for _, operand := range operands {
		name, ok := operand.Value.(ast.String)
		if !ok {
			break
		}
		if s.members == nil {
			s.members = make(map[string]*selection)
		}
		below := s.members[string(name)]
		if below == nil {
			below = &selection{name: ast.StringTerm(string(name))}
			s.members[string(name)] = below
		}
		s = below
	}
	s.whole = true
}

// everything selects all of a value.
var everything = &selection{whole: true}

// of returns what s selects of a JSON text, as OPA makes it of that text; nil if s is. The text was checked when it
// was received; one that cannot be read is an error, which never shows it, since it may be a secret.
func (s *selection) of(text json.RawMessage) (*ast.Term, error) {
	text = bytes.TrimSpace(text)
	switch {
	case s == nil:
		return nil, nil
	case s.whole || len(text) == 0 || text[0] != '{':
		return termOfJSON(text)
	}
	var selected [][2]*ast.Term
	err := wire.EachMember(text, func(name []byte, value json.RawMessage) error {
		below := s.members[string(name)] // does not allocate
		if below == nil {
			return nil
		}
		term, err := below.of(value)
		selected = append(selected, [2]*ast.Term{below.name, term})
		return err
	})
	if err != nil {
		return nil, err
	}
	return ast.ObjectTerm(selected...), nil
}

// termOfJSON returns the value of a JSON text.
func termOfJSON(text []byte) (*ast.Term, error) {
	if n := len(text); n >= 2 && text[0] == '"' && bytes.IndexByte(text, '\\') < 0 {
		return ast.StringTerm(string(text[1 : n-1])), nil // without the decoder: nearly all facts that policies name are texts
	}
	v, err := ast.ValueFromReader(bytes.NewReader(text))
	if err != nil {
		return nil, errors.New("not JSON")
	}
	return ast.NewTerm(v), nil
}

// member returns what is selected of a member of s: nil for nothing.
func (s *selection) member(name string) *selection {
	if s == nil || s.whole {
		return s
	}
	return s.members[name]
}

// nameOf returns the name of a member of s of which below is selected.
func (s *selection) nameOf(name string, below *selection) *ast.Term {
	if s.whole {
		return ast.StringTerm(name)
	}
	return below.name
}
