package policies

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/open-policy-agent/opa/v1/ast"

	"muster/internal/wire"
)

// A selection is the part of a document that a policy reads, nil if it reads nothing. Converting 20 KiB of facts to
// Rego takes longer than the rest of a decision. A selection never changes.
type selection struct {
	whole   bool
	members map[string]*selection // of an object; other types are selected entirely
	name    *ast.Term             // name of the member, made once
}

// selectInput returns what the modules of c read of the input: the constant paths of references, and everything below
// where a path ends or a variable follows. The compiler has replaced imports and aliases by references.
func selectInput(c *ast.Compiler) *selection {
	s := &selection{}
	var v *ast.GenericVisitor
	v = ast.NewGenericVisitor(func(x any) bool {
		switch x := x.(type) {
		case ast.Var:
			// The head of a reference is handled below.
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

// of returns the selected part of a JSON text, or nil. An error does not quote the text, which may hold a secret.
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

func termOfJSON(text []byte) (*ast.Term, error) {
	if n := len(text); n >= 2 && text[0] == '"' && bytes.IndexByte(text, '\\') < 0 {
		return ast.StringTerm(string(text[1 : n-1])), nil // without the decoder: most facts are strings
	}
	v, err := ast.ValueFromReader(bytes.NewReader(text))
	if err != nil {
		return nil, errors.New("not JSON")
	}
	return ast.NewTerm(v), nil
}

func (s *selection) member(name string) *selection {
	if s == nil || s.whole {
		return s
	}
	return s.members[name]
}

// nameOf returns the name of a member as a Rego term.
func (s *selection) nameOf(name string, below *selection) *ast.Term {
	if s.whole {
		return ast.StringTerm(name)
	}
	return below.name
}
