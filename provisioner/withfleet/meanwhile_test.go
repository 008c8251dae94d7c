package provisioner_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/types"

	"muster/internal/simnode"
	"muster/internal/testbed"
)

// meanwhile is what happens while the policy of the one test decides that asks for it.
var meanwhile atomic.Pointer[func()]

var _ = func() bool {
	rego.RegisterBuiltin1(&rego.Function{Name: "muster.test.meanwhile", Decl: types.NewFunction(types.Args(types.S), types.B)},
		func(rego.BuiltinContext, *ast.Term) (*ast.Term, error) {
			if f := meanwhile.Swap(nil); f != nil {
				(*f)()
			}
			return ast.InternedTerm(true), nil
		})
	return true
}()

// TestACertificateThatExpiresWhileItIsAskedFor has the only certificate of a name
// expire while the policy decides whether its key gets it again.
func TestACertificateThatExpiresWhileItIsAskedFor(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Policy: `package muster.enroll
allow := muster.test.meanwhile("x")
certificate := {"ttl": "1h"}
configuration := {"a": "b"}
`})
	n := f.Node("web1.example.net")
	e := f.Enroll(n)
	f.Clock.Advance(time.Hour - 5*time.Second)
	advance := func() { f.Clock.Advance(10 * time.Second) }
	meanwhile.Store(&advance)
	nc := f.Dial(n.Token)
	r, err := simnode.Enroll(f.Context(), nc, n.Request())
	if err != nil {
		t.Fatal(err)
	}
	if r.Refusal != nil {
		t.Fatalf("refused: %s: %s", r.Refusal.Code, f.Cause("web1.example.net"))
	}
	if r.Enrolled.Serial == e.Serial {
		t.Error("got the certificate that has expired")
	}
}
