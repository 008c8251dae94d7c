package provisioner_test

import (
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/types"

	"muster/internal/simnode"
	"muster/internal/testbed"
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

// TestACertificateThatExpiresMeanwhileIsNotReplacedByAnothers has a key's certificate expire
// while the policy decides, and beside it on record is that of the key before.
func TestACertificateThatExpiresMeanwhileIsNotReplacedByAnothers(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Policy: `package muster.enroll
allow := muster.test.later("x")
certificate := {"ttl": "1h"}
configuration := {"a": "b"}
`})
	n := f.Node("web1.example.net")
	first := f.Enroll(n)
	f.Apply(n, first)
	f.Clock.Advance(45 * time.Minute)
	next, _ := f.Renew(n, first)
	f.Clock.Advance(time.Hour - 5*time.Second)
	advance := func() { f.Clock.Advance(10 * time.Second) }
	later.Store(&advance)
	if r := f.Ask(next); r.Enrolled != nil && r.Enrolled.Serial == first.Serial {
		t.Error("a key got the expired certificate of the one before")
	}
	if r := f.Record("web1.example.net"); r.Next != nil && r.Next.KeyHash != keyHash(t, next) {
		t.Errorf("the record offers an expired certificate of the key before: %+v", r.Next)
	}
}

// TestClonesAreAskedAboutByOnePolicy has a policy loaded between the two questions of what it
// says of a machine, and what if there were two of them: that the new one wants facts, which
// nobody has told it, is no reason to keep both machines out.
func TestClonesAreAskedAboutByOnePolicy(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Policy: `package muster.enroll
allow := muster.test.reloading("x")
`})
	p := f.Daemon().Operator()
	_, e := provisioned(f, web1)
	p.Heard(f.Context(), web1, "one", e.Serial)
	p.Heard(f.Context(), web1, "two", e.Serial)
	f.Clock.Advance(grace)
	reload := func() {
		f.Write(filepath.Join("policy", "policy.rego"), "package muster.enroll\n\nallow := true\n\ndeny contains \"no role\" if not input.facts.role\n")
		if _, err := p.ReloadPolicy(f.Context(), operator); err != nil {
			t.Error(err)
		}
	}
	reloading.Store(&reload)
	p.Heard(f.Context(), web1, "one", e.Serial)
	if reloading.Load() != nil {
		t.Fatal("no policy was asked")
	}
	if c := f.Record(web1).Cloned; c == nil || c.Refused || c.Policy != p.Policy().Digest {
		t.Errorf("record says %+v, want clones that the new policy, %s, was asked about and lets in", c, p.Policy().Digest)
	}
	f.Check()
}
