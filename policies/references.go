package policies

import (
	"fmt"

	"github.com/open-policy-agent/opa/v1/ast"
)

// checkReferences is a stage of the compiler, before the one that rewrites references. It checks those below `data`, as
// the schema of the input checks those below `input`. A reference to nothing is refused: its rule would be undefined,
// and a denial would never apply.
func checkReferences(data map[string]any) ast.CompilerStageDefinition {
	return ast.CompilerStageDefinition{
		Name:       "CheckDataReferences",
		MetricName: "compile_stage_check_data_references",
		Stage: func(c *ast.Compiler) *ast.Error {
			var v *ast.GenericVisitor
			v = ast.NewGenericVisitor(func(x any) bool {
				switch x := x.(type) {
				case *ast.With: // its target need not exist
					v.Walk(x.Value)
					return true
				case ast.Ref:
					if problem := missing(x, c.RuleTree, data); problem != "" {
						c.Errors = append(c.Errors, ast.NewError(ast.TypeErr, x[0].Location, "%s", problem))
					}
				}
				return false
			})
			for _, m := range c.Modules {
				for _, rule := range m.Rules {
					v.Walk(rule)
				}
			}
			return nil
		},
	}
}

// missing returns why a reference leads to nothing, whatever the input is, or "".
func missing(ref ast.Ref, rules *ast.TreeNode, data map[string]any) string {
	if !ref[0].Equal(ast.DefaultRootDocument) {
		return ""
	}
	node, value := rules.Child(ref[0].Value), any(data)
	for i, operand := range ref[1:] {
		key, constant := operand.Value.(ast.String)
		if !constant {
			return ""
		}
		if node != nil {
			node = node.Child(key)
		}
		if node != nil && len(node.Values) > 0 {
			return ""
		}
		object, _ := value.(map[string]any)
		member, found := object[string(key)]
		switch {
		case !found && node == nil:
			return fmt.Sprintf("%s is in no rule and in no data file", ref[:i+2])
		case found && member == nil:
			return fmt.Sprintf("%s in the data file is null: give it a value, such as []", ref[:i+2])
		}
		value = member
	}
	return ""
}
