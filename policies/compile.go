package policies

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/types"
	"github.com/open-policy-agent/opa/v1/util"
)

// packagePath is the package whose rules make up the decision.
const packagePath = "data.muster.enroll"

// A policy is one set of files, compiled. It never changes.
type policy struct {
	digest  string                       // of modules and data: what decides
	files   string                       // digest of everything read, tests too: what was loaded
	query   rego.PreparedEvalQuery       // yields what [newDecision] reads
	input   *selection                   // what it looks at
	store   storage.Store                // data files
	tests   map[string]*ast.Module       // modules and tests, parsed
	check   func([]string) (bool, error) // no rule hides data
	unused  []string                     // rules that nothing uses, perhaps misspelled members
	strange []string                     // packages that nothing uses, perhaps misspelled
	untried bool                         // there are no tests
}

// compile parses and compiles what was read. All errors of the first stage
// that has any come together, each with its file and line; they wrap
// [ErrInvalid].
func compile(ctx context.Context, all []source) (*policy, error) {
	p := &policy{
		digest: digest(all, func(s source) bool { return !s.isTest() }),
		files:  digest(all, func(source) bool { return true }),
		tests:  make(map[string]*ast.Module, len(all)),
	}
	root, err := data(all)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	p.store, p.check = inmem.NewFromObject(root), dataPaths(root)

	modules := make(map[string]*ast.Module, len(all)) // without tests
	var errs []error
	for _, s := range all {
		if s.isData() {
			continue
		}
		m, err := ast.ParseModuleWithOpts(s.path, string(s.content), ast.ParserOptions{Capabilities: capabilities()})
		if err != nil {
			errs = append(errs, compileErrors(err)...)
			continue
		}
		if m == nil { // nothing but comments
			errs = append(errs, fmt.Errorf("%s: holds no package", s.path))
			continue
		}
		p.tests[s.path] = m
		if !s.isTest() {
			modules[s.path] = m
		}
	}
	if len(errs) > 0 {
		return nil, invalid(errs)
	}
	p.untried = len(p.tests) == len(modules)

	c := p.compiler()
	if c.Compile(modules); c.Failed() {
		return nil, invalid(compileErrors(c.Errors))
	}
	defined := definedMembers(c)
	if !slices.Contains(defined, "allow") {
		return nil, invalid([]error{fmt.Errorf("no rule %s.allow", packagePath)})
	}
	if errs := decidingTests(all, p.tests); len(errs) > 0 {
		return nil, invalid(errs)
	}
	if errs := checkTypes(c, defined); len(errs) > 0 {
		return nil, invalid(errs)
	}
	p.unused, p.strange, p.input = unusedRules(c), unusedPackages(c), selectInput(c)

	p.query, err = rego.New(
		rego.Query(decisionQuery(defined)),
		rego.Compiler(c),
		rego.Store(p.store),
		// Without it an error in a built-in function is merely undefined, which
		// `not` makes true.
		rego.StrictBuiltinErrors(true),
		// [newDecision] reads Rego's own value.
		rego.GenerateJSON(func(t *ast.Term, _ *rego.EvalContext) (any, error) { return t.Value, nil }),
	).PrepareForEval(ctx)
	if err != nil {
		return nil, invalid(compileErrors(err))
	}
	return p, nil
}

// compiler returns a strict compiler with our capabilities.
func (p *policy) compiler() *ast.Compiler {
	return ast.NewCompiler().
		SetErrorLimit(0). // all of them
		WithStrict(true).
		WithCapabilities(capabilities()).
		WithSchemas(inputSchema()).
		WithPathConflictsCheck(p.check)
}

// decisionQuery returns the query that yields, per member of the decision, a
// list of its value, empty if it is undefined. Asking for single rules rather
// than for the package evaluates no helper that nothing uses. A member without
// rules is left out: there is nothing to look up.
func decisionQuery(defined []string) string {
	var q strings.Builder
	q.WriteString("{")
	for i, name := range defined {
		if i > 0 {
			q.WriteString(", ")
		}
		fmt.Fprintf(&q, "%q: [x | x := %s.%s]", name, packagePath, name)
	}
	q.WriteString("}")
	return q.String()
}

// definedMembers returns the members of the decision that have rules.
func definedMembers(c *ast.Compiler) []string {
	var defined []string
	for _, name := range slices.Sorted(maps.Keys(decided)) {
		if len(c.GetRules(ast.MustParseRef(packagePath+"."+name))) > 0 {
			defined = append(defined, name)
		}
	}
	return defined
}

// decidingTests refuses members of the decision that are in files of tests: the policy's
// tests would see them, and no decision would. A load_test.rego may be about machines for
// load tests.
func decidingTests(all []source, modules map[string]*ast.Module) []error {
	var errs []error
	for _, s := range all {
		m := modules[s.path]
		if !s.isTest() || m.Package.Path.String() != packagePath {
			continue
		}
		for _, r := range m.Rules {
			if name := ruleName(r); decided[name] != nil {
				errs = append(errs, fmt.Errorf("%s:%d: %s decides nothing here: files called *_test.rego are for tests", s.path, r.Loc().Row, name))
			}
		}
	}
	return errs
}

// ruleName returns the name of a rule, of one with a longer head its first part.
func ruleName(r *ast.Rule) string {
	if name := string(r.Head.Name); name != "" || len(r.Head.Ref()) == 0 {
		return name
	}
	return strings.Trim(r.Head.Ref()[0].Value.String(), `"`)
}

// checkTypes refuses members whose rules can only be of another type than
// they must, where the compiler can tell. What it cannot tell is checked on every
// decision.
func checkTypes(c *ast.Compiler, defined []string) []error {
	var errs []error
	for _, name := range defined {
		ref := ast.MustParseRef(packagePath + "." + name)
		t := c.TypeEnv.GetByRef(ref)
		if t == nil || couldBe(t, decided[name]) {
			continue
		}
		at := ""
		if rules := c.GetRules(ref); len(rules) > 0 && rules[0].Loc() != nil {
			at = rules[0].Loc().File + fmt.Sprintf(":%d: ", rules[0].Loc().Row)
		}
		errs = append(errs, fmt.Errorf("%s%s is %s, want %s", at, name, types.Sprint(t), strings.Join(decided[name], " or ")))
	}
	return errs
}

// couldBe reports whether a value of type t could be of one of the kinds.
func couldBe(t types.Type, kinds []string) bool {
	switch t := t.(type) {
	case types.Any:
		return len(t) == 0 || slices.ContainsFunc(t, func(of types.Type) bool { return couldBe(of, kinds) })
	case *types.NamedType:
		return couldBe(t.Type, kinds)
	case types.Boolean:
		return slices.Contains(kinds, "boolean")
	case *types.Set:
		return slices.Contains(kinds, "set")
	case *types.Array:
		return slices.Contains(kinds, "array")
	case *types.Object:
		return slices.Contains(kinds, "object")
	case types.Null, types.Number, types.String, *types.Function:
		return false
	default:
		return true
	}
}

// unusedRules returns the rules of the decision's package that are no member
// and that no other rule uses, as "file:line: name": some of them are members
// misspelled, such as "denied".
func unusedRules(c *ast.Compiler) []string {
	var unused []string
	for _, name := range slices.Sorted(maps.Keys(c.Modules)) {
		m := c.Modules[name]
		if m.Package.Path.String() != packagePath {
			continue
		}
		for _, r := range m.Rules {
			rule := ruleName(r)
			if _, ok := decided[rule]; ok || used(c.Graph, r) {
				continue
			}
			if at := fmt.Sprintf("%s:%d: %s", r.Loc().File, r.Loc().Row, rule); !slices.Contains(unused, at) {
				unused = append(unused, at)
			}
		}
	}
	return unused
}

// used reports whether a rule other than r depends on r.
func used(g *ast.Graph, r *ast.Rule) bool {
	for by := range g.Dependents(util.T(r)) {
		if by != util.T(r) {
			return true
		}
	}
	return false
}

// unusedPackages returns the packages other than the decision's of which no rule is used
// outside, as "file:line: name": some of them are the decision's, misspelled.
func unusedPackages(c *ast.Compiler) []string {
	var unused []string
	for _, name := range slices.Sorted(maps.Keys(c.Modules)) {
		p := c.Modules[name].Package
		if p.Path.String() != packagePath && !usedOutside(c, p.Path) {
			unused = append(unused, fmt.Sprintf("%s:%d: %s", p.Loc().File, p.Loc().Row, strings.TrimPrefix(p.Path.String(), "data.")))
		}
	}
	return unused
}

// usedOutside reports whether a rule of any other package depends on one of this.
func usedOutside(c *ast.Compiler, path ast.Ref) bool {
	for _, m := range c.Modules {
		if !m.Package.Path.Equal(path) {
			continue
		}
		for _, r := range m.Rules {
			for by := range c.Graph.Dependents(util.T(r)) {
				if rule, ok := by.(*ast.Rule); ok && !rule.Module.Package.Path.Equal(path) {
					return true
				}
			}
		}
	}
	return false
}

// maxErrorBytes bounds one error of a policy. It quotes a line, which may have megabytes, such as a list that a program
// has written, and goes into the log and an event.
const maxErrorBytes = 1 << 10

// compileErrors returns the errors that OPA joined in err one by one.
func compileErrors(err error) []error {
	var list ast.Errors
	if !errors.As(err, &list) {
		return []error{err}
	}
	var errs []error
	for _, e := range list {
		errs = append(errs, errors.New(cut(explain(e).Error(), maxErrorBytes)))
	}
	return errs
}

// mostErrors is how many errors are told of a policy; chosen, a screen or two. An alarm and an
// event have them as well.
const mostErrors = 64

// invalid joins errs under [ErrInvalid], one a line.
func invalid(errs []error) error {
	if more := len(errs) - mostErrors; more > 0 {
		errs = append(errs[:mostErrors:mostErrors], fmt.Errorf("and %d more", more))
	}
	if len(errs) == 1 {
		return fmt.Errorf("%w: %w", ErrInvalid, errs[0])
	}
	return fmt.Errorf("%w:\n%w", ErrInvalid, errors.Join(errs...))
}
