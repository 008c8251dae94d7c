package policies

import (
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
)

// value returns a Go value as Rego's.
func value(t *testing.T, v any) ast.Value {
	t.Helper()
	made, err := ast.InterfaceToValue(v)
	if err != nil {
		t.Skip(err) // a number that OPA does not take
	}
	return made
}
