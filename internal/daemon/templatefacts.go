package daemon

import (
	"encoding/json"
	"slices"
	"text/template"
	"text/template/parse"

	"muster/provisioner/facts"
)

// pick returns what the template may look at of facts.
func (t templated) pick(raw json.RawMessage) json.RawMessage {
	if t.facts == nil {
		return raw
	}
	return facts.Pick(raw, func(name []byte) bool { return t.facts[string(name)] })
}

// factsOf returns the facts that a template names, nil if it may look at any: because
// it takes all of .Facts somewhere, as for range or index, or all that it is given.
func factsOf(t *template.Template) map[string]bool {
	u := factUse{names: map[string]bool{}}
	for _, defined := range t.Templates() {
		u.look(defined.Root)
	}
	if u.any {
		return nil
	}
	return u.names
}

// A factUse is what a template looks at of facts, as far as it has been read.
type factUse struct {
	names map[string]bool
	any   bool
}

func (u *factUse) look(node parse.Node) {
	switch n := node.(type) {
	case *parse.ListNode:
		if n != nil {
			u.each(n.Nodes...)
		}
	case *parse.ActionNode:
		u.look(n.Pipe)
	case *parse.IfNode:
		u.each(n.Pipe, n.List, n.ElseList)
	case *parse.RangeNode:
		u.each(n.Pipe, n.List, n.ElseList)
	case *parse.WithNode:
		u.each(n.Pipe, n.List, n.ElseList)
	case *parse.TemplateNode:
		if n.Pipe != nil && n.Pipe.String() != "." { // what it is handed on to is read as well
			u.look(n.Pipe)
		}
	case *parse.PipeNode:
		if n != nil {
			for _, c := range n.Cmds {
				u.each(c.Args...)
			}
		}
	case *parse.FieldNode:
		u.field(n.Ident)
	case *parse.VariableNode:
		u.any = u.any || len(n.Ident) == 1 && n.Ident[0] == "$"
		u.field(n.Ident)
	case *parse.ChainNode:
		u.look(n.Node)
		u.field(n.Field)
	case *parse.DotNode:
		u.any = true // that may be everything
	}
}

func (u *factUse) each(nodes ...parse.Node) {
	for _, n := range nodes {
		u.look(n)
	}
}

// field reads a chain of names, such as .Facts.os.name.
func (u *factUse) field(chain []string) {
	switch i := slices.Index(chain, "Facts"); {
	case i < 0:
	case i == len(chain)-1:
		u.any = true
	default:
		u.names[chain[i+1]] = true
	}
}
