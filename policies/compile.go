package policies

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/util"
)

// The packages of decisions: about nodes, and about their service certificates.
const (
	enrollPath  = "data.muster.enroll"
	servicePath = "data.muster.certificate"
)

// A policy is a compiled set of files. It is read-only.
type policy struct {
	digest  string                 // of modules and data
	files   string                 // digest of all files
	read    []source               // these files
	loaded  time.Time              // when they came into use
	results []TestResult           // of the tests
	input   *selection             // what it reads
	root    map[string]any         // data
	store   storage.Store          // the same
	schemas *ast.SchemaSet         // of input and data
	tests   map[string]*ast.Module // with modules, parsed

	queries map[string]rego.PreparedEvalQuery // by package, see [decisionQuery]

	// warnings name what does not prevent the use of the policy, but may be a mistake.
	warnings []string
}

// compile returns all errors of the first stage that fails, with file and line. They wrap [ErrInvalid].
func compile(ctx context.Context, all []source, cfg Config) (*policy, error) {
	p := &policy{
		digest: digest(all, func(s source) bool { return !s.isTest() }),
		files:  digest(all, func(source) bool { return true }),
		read:   all,
		tests:  make(map[string]*ast.Module, len(all)),
	}
	root, err := data(all)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	modules := make(map[string]*ast.Module, len(all)) // without tests
	var errs []error
	for _, s := range all {
		if s.isData() {
			continue
		}
		m, err := parse(s)
		if err != nil {
			errs = append(errs, compileErrors(err)...)
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

	withService(root, p.tests, modules)
	p.root, p.store = root, inmem.NewFromObject(root)

	p.schemas = inputSchema()
	types := typeData(root, p.tests, p.schemas)
	p.tests[""], modules[""] = types, types

	notRead := unread(cfg.Paths)
	c := p.compiler(ctx)
	if c.Compile(modules); c.Failed() {
		errs = compileErrors(c.Errors)
		for _, line := range notRead { // perhaps the data that is missing
			errs = append(errs, errors.New(line))
		}
		return nil, invalid(errs)
	}
	p.input, p.warnings = selectInput(c), append(unusedRules(c), notRead...)
	if len(p.tests) == len(modules) {
		p.warnings = append(p.warnings, "policy has no tests")
	}

	p.queries = make(map[string]rego.PreparedEvalQuery)
	for _, path := range []string{enrollPath, servicePath} {
		if p.queries[path], err = p.prepare(ctx, c, path); err != nil {
			return nil, err
		}
	}
	for _, in := range []*Input{sample(), serviceSample()} {
		what := "a new node"
		if in.Certificate != nil {
			what = "a service certificate of a node"
		}
		if err := p.try(ctx, cfg, in); err != nil {
			p.warnings = append(p.warnings, fmt.Sprintf("for %s without facts: %v", what, err))
		}
	}
	return p, nil
}

// withService adds the built-in rules about service certificates, and their data, to a policy that has none.
func withService(root map[string]any, tests, modules map[string]*ast.Module) {
	if _, given := root["certificate_names"]; !given {
		root["certificate_names"] = map[string]any{}
	}
	for _, m := range modules {
		if m.Package.Path.String() == servicePath {
			return
		}
	}
	const path = "builtin/certificate.rego"
	m := ast.MustParseModuleWithOpts(serviceRego, ast.ParserOptions{Capabilities: capabilities()})
	tests[path], modules[path] = m, m
}

func (p *policy) prepare(ctx context.Context, c *ast.Compiler, path string) (rego.PreparedEvalQuery, error) {
	defined := slices.DeleteFunc(slices.Clone(members[path]), func(name string) bool {
		return len(c.GetRules(ast.MustParseRef(path+"."+name))) == 0
	})
	if !slices.Contains(defined, "allow") {
		return rego.PreparedEvalQuery{}, invalid([]error{fmt.Errorf("no rule %s.allow", path)})
	}
	query, err := rego.New(
		rego.Query(decisionQuery(path, defined)),
		rego.Compiler(c),
		rego.Store(p.store),
		// Otherwise an error in a built-in function gives undefined, and `not` turns that into true.
		rego.StrictBuiltinErrors(true),
		// [Decision.read] reads Rego's own type.
		rego.GenerateJSON(func(t *ast.Term, _ *rego.EvalContext) (any, error) { return t.Value, nil }),
	).PrepareForEval(ctx)
	if err != nil {
		return query, invalid(compileErrors(err))
	}
	return query, nil
}

// try follows the decision about a sample, whatever it is, to find mistakes that do not depend on facts.
func (p *policy) try(ctx context.Context, cfg Config, in *Input) error {
	e := &Engine{cfg: Config{Print: func(string) {}}}
	e.current.Store(p)
	d, err := e.Decide(ctx, in)
	if err != nil || cfg.Follow == nil {
		return err
	}
	if d.Configuration == nil { // so that no helper runs
		d.Configuration = map[string]string{"identity": in.Identity}
	}
	_, err = cfg.Follow(ctx, in, d)
	return err
}

func sample() *Input {
	const name, broker = "web1.example.net", "broker.example.net:4222"
	now := time.Now().UTC().Truncate(time.Second)
	return &Input{
		Identity: name,
		Proof:    ProofToken,
		Token:    Token{ID: "sample", Signer: "sample", Org: "choria", IssuedAt: now, URLs: []string{broker}},
		CSR:      CSR{CommonName: name, DNSNames: []string{name}, Key: Key{Type: "P-256"}},
		Node:     Node{State: "none", Reason: "new"},
		Source:   Source{Address: "192.0.2.1"},
		Time:     now,
	}
}

func serviceSample() *Input {
	in := sample()
	in.Proof, in.Node = ProofCertificate, onRecord
	in.Certificate = &ServiceRequest{Name: "sample", Source: "file"}
	return in
}

// parse returns a module. Rego of before version 1.0 is told so.
func parse(s source) (*ast.Module, error) {
	options := ast.ParserOptions{Capabilities: capabilities()}
	m, err := ast.ParseModuleWithOpts(s.path, string(s.content), options)
	if err == nil && m == nil { // only comments
		return nil, fmt.Errorf("%s: holds no package", s.path)
	}
	if err == nil {
		return m, nil
	}
	options.RegoVersion = ast.RegoV0
	if _, old := ast.ParseModuleWithOpts(s.path, string(s.content), options); old == nil {
		return nil, fmt.Errorf("%w; it is Rego of before version 1.0: rewrite it with `opa fmt --v0-v1 --write %s`",
			compileErrors(err)[0], s.path)
	}
	return nil, err
}

// compiler is strict. No rule may hide data.
func (p *policy) compiler(ctx context.Context) *ast.Compiler {
	return ast.NewCompiler().
		WithStrict(true).
		WithEnablePrintStatements(true).
		WithCapabilities(capabilities()).
		WithSchemas(p.schemas).
		WithUseTypeCheckAnnotations(true).
		WithStageAfterID(ast.StageSetRuleTree, checkReferences(p.root)).
		WithPathConflictsCheck(func(path []string) (found bool, err error) {
			err = storage.Txn(ctx, p.store, storage.TransactionParams{}, func(txn storage.Transaction) error {
				found, err = storage.NonEmpty(ctx, p.store, txn)(path)
				return err
			})
			return found, err
		})
}

// decisionQuery asks for a list per member: its value, or nothing if undefined. It names single rules, so that unused
// helpers are not evaluated.
func decisionQuery(path string, defined []string) string {
	var lists []string
	for _, name := range defined {
		lists = append(lists, fmt.Sprintf("%q: [x | x := %s.%s]", name, path, name))
	}
	return "{" + strings.Join(lists, ", ") + "}"
}

// unusedRules returns a line for each rule that no other rule uses and that is not a member. Some are misspelled
// members, such as "denied".
func unusedRules(c *ast.Compiler) []string {
	var unused []string
	for _, name := range slices.Sorted(maps.Keys(c.Modules)) {
		path := c.Modules[name].Package.Path.String()
		for _, r := range c.Modules[name].Rules {
			if rule := r.Head.Ref()[0].Value.String(); !used(c.Graph, r) && !slices.Contains(members[path], rule) {
				unused = append(unused, fmt.Sprintf(
					"%s:%d: %s.%s is used by no rule and is no member of the decision: is it misspelled?",
					r.Loc().File, r.Loc().Row, strings.TrimPrefix(path, "data."), rule))
			}
		}
	}
	return slices.Compact(unused)
}

func used(g *ast.Graph, r *ast.Rule) bool {
	for by := range g.Dependents(util.T(r)) {
		if by != util.T(r) {
			return true
		}
	}
	return false
}

// compileErrors splits the errors that OPA joined, and keeps the first type error of each place.
func compileErrors(err error) []error {
	var list ast.Errors
	if !errors.As(err, &list) {
		return []error{err}
	}
	var errs []error
	for i, e := range list {
		same := func(earlier *ast.Error) bool {
			return e.Code == ast.TypeErr && earlier.Code == ast.TypeErr && e.Location.Equal(earlier.Location)
		}
		if !slices.ContainsFunc(list[:i], same) {
			errs = append(errs, e)
		}
	}
	return errs
}

// invalid joins errs under [ErrInvalid], each on its own line.
func invalid(errs []error) error {
	if len(errs) == 1 {
		return fmt.Errorf("%w: %w", ErrInvalid, errs[0])
	}
	return fmt.Errorf("%w:\n%w", ErrInvalid, errors.Join(errs...))
}

// refused are the built-in functions that reach network, files or environment, handle keys, or return something else at
// each call. Without them a decision depends only on input and data, and can be replayed.
var refused = []string{
	"http.send", "net.lookup_ip_addr", "json.match_schema", "json.verify_schema", "opa.runtime",
	"rego.parse_module", "trace",
	"rand.intn", "uuid.rfc4122", "io.jwt.encode_sign", "io.jwt.encode_sign_raw", "providers.aws.sign_req",
}

// capabilities are OPA's without [refused], and without hosts to fetch schemas from.
func capabilities() *ast.Capabilities {
	c := ast.CapabilitiesForThisVersion()
	c.Builtins = slices.DeleteFunc(c.Builtins, func(b *ast.Builtin) bool { return slices.Contains(refused, b.Name) })
	c.AllowNet = []string{} // nil: any
	return c
}
