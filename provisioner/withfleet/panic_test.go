package provisioner_test

import (
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/types"
)

// A buggy built-in function of OPA, before any policy is compiled.
var _ = func() bool {
	rego.RegisterBuiltin1(&rego.Function{Name: "muster.test.panic",
		Decl: types.NewFunction(types.Args(types.S), types.B)},
		func(rego.BuiltinContext, *ast.Term) (*ast.Term, error) { panic("a bug in a built-in function") })
	return true
}()
