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
	"github.com/open-policy-agent/opa/v1/util"
)

// packagePath is the package whose rules make up the decision.
const packagePath = "data.muster.enroll"

// A policy is one set of files, compiled. It never changes.
type policy struct {
	digest  string                 // of modules and data: what decides
	files   string                 // digest of everything read, tests too: what was loaded
	query   rego.PreparedEvalQuery // yields what [newDecision] reads
	input   *selection             // what it looks at
	store   storage.Store          // data files
	tests   map[string]*ast.Module // modules and tests, parsed
	unused  []string               // rules that nothing uses, perhaps misspelled
	untried bool                   // there are no tests
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
	p.store = inmem.NewFromObject(root)

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

	c := p.compiler(ctx)
	if c.Compile(modules); c.Failed() {
		return nil, invalid(compileErrors(c.Errors))
	}
	defined := definedMembers(c)
	if !slices.Contains(defined, "allow") {
		return nil, invalid([]error{fmt.Errorf("no rule %s.allow", packagePath)})
	}
	p.unused, p.input = unusedRules(c), selectInput(c)

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

// compiler returns a strict compiler with our capabilities. No rule may hide data.
func (p *policy) compiler(ctx context.Context) *ast.Compiler {
	return ast.NewCompiler().
		WithStrict(true).
		WithCapabilities(capabilities()).
		WithSchemas(inputSchema()).
		WithPathConflictsCheck(func(path []string) (found bool, err error) {
			err = storage.Txn(ctx, p.store, storage.TransactionParams{}, func(txn storage.Transaction) error {
				found, err = storage.NonEmpty(ctx, p.store, txn)(path)
				return err
			})
			return found, err
		})
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
	for _, name := range members {
		if len(c.GetRules(ast.MustParseRef(packagePath+"."+name))) > 0 {
			defined = append(defined, name)
		}
	}
	return defined
}

// ruleName returns the name of a rule, of one with a longer head its first part.
func ruleName(r *ast.Rule) string {
	if name := string(r.Head.Name); name != "" || len(r.Head.Ref()) == 0 {
		return name
	}
	return strings.Trim(r.Head.Ref()[0].Value.String(), `"`)
}

// unusedRules returns the rules that are no member of the decision and that no
// other rule uses, as "file:line: name": some of them are members or packages
// misspelled, such as "denied".
func unusedRules(c *ast.Compiler) []string {
	var unused []string
	for _, name := range slices.Sorted(maps.Keys(c.Modules)) {
		m := c.Modules[name]
		for _, r := range m.Rules {
			path := m.Package.Path.String()
			if rule := ruleName(r); !used(c.Graph, r) && (path != packagePath || !slices.Contains(members, rule)) {
				at := fmt.Sprintf("%s:%d: %s.%s", r.Loc().File, r.Loc().Row, strings.TrimPrefix(path, "data."), rule)
				unused = append(unused, at)
			}
		}
	}
	return slices.Compact(unused)
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

// compileErrors returns the errors that OPA joined in err one by one.
func compileErrors(err error) []error {
	var list ast.Errors
	if !errors.As(err, &list) {
		return []error{err}
	}
	var errs []error
	for _, e := range list {
		errs = append(errs, e)
	}
	return errs
}

// invalid joins errs under [ErrInvalid], one a line.
func invalid(errs []error) error {
	if len(errs) == 1 {
		return fmt.Errorf("%w: %w", ErrInvalid, errs[0])
	}
	return fmt.Errorf("%w:\n%w", ErrInvalid, errors.Join(errs...))
}
