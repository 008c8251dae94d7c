package policies

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/topdown"

	"muster/internal/wire"
)

// A Trace is how a policy came to a decision.
type Trace struct {
	Verdict  Verdict   // [VerdictFailed] if there is no decision
	Decision *Decision // nil if there is none
	Err      error     // why there is none, else nil

	// Rules are those that were looked at, by file and line. All are, also where a
	// decision would need only some.
	Rules []RuleTrace
}

// A RuleTrace is what became of one rule.
type RuleTrace struct {
	Rule  string `json:"rule"` // its name
	File  string `json:"file"`
	Line  int    `json:"line"`
	Fired int    `json:"fired"` // how often its body held

	// Failed is the first line of its body that did not hold when it was last
	// tried, and 0 if it fired. Text is that expression, as it was written.
	Failed int    `json:"failed_line,omitempty"`
	Text   string `json:"failed,omitempty"`
}

// Explain decides about in, as Decide does, and says which rules made it so. It is
// for people: it costs many times what Decide does. What it shows of a policy is
// the policy's own text, and nothing of in.
func (e *Engine) Explain(ctx context.Context, in *Input) *Trace {
	var t Trace
	if in.Time.IsZero() {
		timed := *in
		timed.Time = e.cfg.Now().UTC().Truncate(time.Second)
		in = &timed
	}
	t.Decision, t.Err = e.Decide(ctx, in)
	t.Verdict = VerdictFailed
	if t.Err == nil {
		t.Verdict = t.Decision.Verdict()
	}
	p := e.current.Load()
	input, err := in.value(p.input)
	if err != nil {
		return &t // Decide has said so
	}
	r := ruleTracer{byQuery: make(map[uint64]*ast.Rule), rules: make(map[*ast.Rule]*RuleTrace)}
	ctx, cancel := context.WithTimeout(ctx, 10*e.cfg.Timeout) // traced, it takes longer
	defer cancel()
	// Without index and early exit, or rules that it need not look at would be
	// missing. What it comes to is known already.
	_, _ = p.query.Eval(ctx, rego.EvalParsedInput(input), rego.EvalTime(in.Time), rego.EvalQueryTracer(&r), rego.EvalRuleIndexing(false), rego.EvalEarlyExit(false))
	t.Rules = r.traces()
	return &t
}

// A ruleTracer gathers what became of rules. It is for one evaluation.
type ruleTracer struct {
	byQuery map[uint64]*ast.Rule // whose body a query is
	rules   map[*ast.Rule]*RuleTrace
}

// Enabled implements [topdown.QueryTracer].
func (*ruleTracer) Enabled() bool { return true }

// Config implements [topdown.QueryTracer].
func (*ruleTracer) Config() topdown.TraceConfig { return topdown.TraceConfig{} }

// TraceEvent implements [topdown.QueryTracer].
func (r *ruleTracer) TraceEvent(e topdown.Event) {
	switch node := e.Node.(type) {
	case *ast.Rule:
		switch e.Op {
		case topdown.EnterOp:
			r.byQuery[e.QueryID] = node
			r.of(node)
		case topdown.ExitOp:
			t := r.of(node)
			t.Fired++
			t.Failed, t.Text = 0, ""
		}
	case *ast.Expr:
		rule := r.byQuery[e.QueryID]
		if e.Op != topdown.FailOp || rule == nil || node.Loc() == nil {
			return
		}
		if t := r.of(rule); t.Fired == 0 {
			t.Failed, t.Text = node.Loc().Row, firstLine(string(node.Loc().Text))
		}
	}
}

// of returns what is known of a rule.
func (r *ruleTracer) of(rule *ast.Rule) *RuleTrace {
	t := r.rules[rule]
	if t == nil {
		t = &RuleTrace{Rule: rule.Head.Ref().String()}
		if at := rule.Loc(); at != nil {
			t.File, t.Line = at.File, at.Row
		}
		r.rules[rule] = t
	}
	return t
}

// traces returns all rules by file and line.
func (r *ruleTracer) traces() []RuleTrace {
	all := make([]RuleTrace, 0, len(r.rules))
	for _, t := range r.rules {
		all = append(all, *t)
	}
	slices.SortFunc(all, func(a, b RuleTrace) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Rule, b.Rule))
	})
	return all
}

// firstLine returns the first line of a policy's text.
func firstLine(text string) string {
	line, _, more := strings.Cut(strings.TrimSpace(text), "\n")
	if more {
		return line + " ..."
	}
	return line
}

// ParseInput decodes an input as it is recorded, or as a person writes it: what is
// not given is as of a machine that was never seen, and the certificate request's
// names are the identity's. A member that there is none of is a mistake.
func ParseInput(b []byte) (*Input, error) {
	in := &Input{Node: Node{State: "none", Reason: "new"}}
	if err := wire.DecodeStrict(b, in); err != nil {
		return nil, fmt.Errorf("input: %w", err)
	}
	if in.Identity == "" {
		return nil, errors.New("input: no identity")
	}
	if in.CSR.CommonName == "" && in.CSR.DNSNames == nil {
		in.CSR.CommonName, in.CSR.DNSNames = in.Identity, []string{in.Identity}
	}
	return in, nil
}
