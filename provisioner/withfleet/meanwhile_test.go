package provisioner_test

import (
	"sync/atomic"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/types"
)

// meanwhile and later are what happens while a policy decides that asks for it, once: each
// is of one test.
var meanwhile, later, reloading atomic.Pointer[func()]

var _ = func() bool {
	for name, what := range map[string]*atomic.Pointer[func()]{"muster.test.meanwhile": &meanwhile, "muster.test.later": &later, "muster.test.reloading": &reloading} {
		rego.RegisterBuiltin1(&rego.Function{Name: name, Decl: types.NewFunction(types.Args(types.S), types.B)},
			func(rego.BuiltinContext, *ast.Term) (*ast.Term, error) {
				if f := what.Swap(nil); f != nil {
					(*f)()
				}
				return ast.InternedTerm(true), nil
			})
	}
	return true
}()
