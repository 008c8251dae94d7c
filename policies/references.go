package policies

import (
	"fmt"
	"reflect"

	"github.com/open-policy-agent/opa/v1/ast"
)

// references checks those below `data`, as the schema of the input checks those below `input`. A reference to nothing
// is refused: its rule would be undefined, and a denial would never apply.
type references struct {
	rules  *ast.TreeNode
	data   map[string]any
	mocked []ast.Ref // targets of `with` below `data`
	errs   ast.Errors
}

// checkReferences is a stage of the compiler, before the one that rewrites references.
func checkReferences(data map[string]any) ast.CompilerStageDefinition {
	return ast.CompilerStageDefinition{
		Name:       "CheckDataReferences",
		MetricName: "compile_stage_check_data_references",
		Stage: func(c *ast.Compiler) *ast.Error {
			r := &references{rules: c.RuleTree, data: data}
			for _, m := range c.Modules {
				ast.WalkWiths(m, func(w *ast.With) bool {
					if target, ok := w.Target.Value.(ast.Ref); ok && target[0].Equal(ast.DefaultRootDocument) {
						r.mocked = append(r.mocked, target)
					}
					return false
				})
			}
			for _, m := range c.Modules {
				r.check(m)
			}
			c.Errors = append(c.Errors, r.errs...)
			return nil
		},
	}
}

func (r *references) check(m *ast.Module) {
	var v *ast.GenericVisitor
	v = ast.NewGenericVisitor(func(x any) bool {
		switch x := x.(type) {
		case *ast.With: // its target need not exist
			v.Walk(x.Value)
			return true
		case *ast.Expr:
			if x.IsCall() {
				r.member(x.Operator(), x.Operands())
			}
		case ast.Call:
			r.member(x[0].Value.(ast.Ref), x[1:])
		case ast.Ref:
			if _, problem := r.resolve(x); problem != "" {
				r.errs = append(r.errs, ast.NewError(ast.TypeErr, x[0].Location, "%s", problem))
			}
		}
		return false
	})
	for _, rule := range m.Rules {
		v.Walk(rule)
	}
}

// member refuses `x in y` if y is data without elements. It would be false for every x.
func (r *references) member(operator ast.Ref, operands []*ast.Term) {
	if !operator.Equal(ast.Member.Ref()) && !operator.Equal(ast.MemberWithKey.Ref()) {
		return
	}
	of, ok := operands[len(operands)-1].Value.(ast.Ref)
	if !ok {
		return
	}
	if value, problem := r.resolve(of); problem == "" && value != nil && !collection(value) {
		r.errs = append(r.errs, ast.NewError(ast.TypeErr, of[0].Location, "%s", single(of, value)))
	}
}

func collection(value any) bool {
	switch value.(type) {
	case []any, map[string]any:
		return true
	}
	return false
}

func single(ref ast.Ref, value any) string {
	return fmt.Sprintf("%s in the data file is %s, want an array or an object", ref,
		kind(ast.MustInterfaceToValue(value)))
}

// resolve returns the data that ref leads to, or why it leads to nothing whatever the input is. Both are empty if that
// depends on rules or on the input.
func (r *references) resolve(ref ast.Ref) (value any, problem string) {
	if !ref[0].Equal(ast.DefaultRootDocument) || r.mocks(ref) {
		return nil, ""
	}
	node, value := r.rules.Child(ref[0].Value), any(r.data)
	for i, operand := range ref[1:] {
		before := ref[:i+1]
		key, constant := operand.Value.(ast.String)
		_, list := value.([]any)
		switch {
		case list && (constant || inputText(operand)):
			return nil, fmt.Sprintf("%s in the data file is an array, which has no names: want `x in %s`",
				before, before)
		case value != nil && !collection(value):
			return nil, single(before, value)
		case !constant:
			return nil, ""
		}
		if node != nil {
			node = node.Child(key)
		}
		if node != nil && len(node.Values) > 0 {
			return nil, ""
		}
		object, _ := value.(map[string]any)
		member, found := object[string(key)]
		switch {
		case !found && node == nil:
			return nil, fmt.Sprintf("%s is in no rule and in no data file", ref[:i+2])
		case found && member == nil:
			return nil, fmt.Sprintf("%s in the data file is null: give it a value, such as []", ref[:i+2])
		}
		value = member
	}
	return value, ""
}

// mocks reports whether a `with` replaces the document, or a part of it.
func (r *references) mocks(ref ast.Ref) bool {
	for _, target := range r.mocked {
		if ref.HasPrefix(target) || target.HasPrefix(ref) {
			return true
		}
	}
	return false
}

// inputText reports whether a term is a member of the input that is always a string.
func inputText(t *ast.Term) bool {
	ref, ok := t.Value.(ast.Ref)
	if !ok || !ref[0].Equal(ast.InputRootDocument) {
		return false
	}
	schema := schemaOf(reflect.TypeFor[Input]())
	for _, key := range ref[1:] {
		name, _ := key.Value.(ast.String)
		properties, _ := schema["properties"].(map[string]any)
		schema, _ = properties[string(name)].(map[string]any)
	}
	return schema["type"] == "string"
}
