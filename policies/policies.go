// Package policies asks the operators' Rego policy about each request.
//
// A policy is the package `muster.enroll` in one or more Rego files, with data
// and tests beside it. [Load] compiles it once, strictly, runs its tests, and
// refuses it if anything is wrong. [Engine.Decide] evaluates `data.muster.enroll`
// for one [Input] and returns a [Decision]. [Engine.Run] watches the files
// and replaces the policy when they change, if the new one passes as well.
//
// # Trust
//
// Policies are the operators' own: they are trusted with what they decide, and
// not with the provisioner's network, environment or time. They cannot call
// the functions that reach those, an evaluation is bounded by a time-out, and
// whatever goes wrong in one denies. What policies see of a node is checked
// by others, or not at all; [Input] says which is which.
//
// # Compatibility
//
// The members of [Input] and [Decision] are the interface to policies: members
// are added, none is renamed or changes its type.
//
// The package is the only one that knows OPA.
package policies

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/metrics"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// ErrInvalid means that there is no usable policy: files that do not compile,
// tests that fail, or nothing at all. The text lists every mistake with its
// file and line. The operator has to change the files.
var ErrInvalid = errors.New("policy cannot be used")

// ErrPolicy means that a policy gave no decision: `allow` was undefined, a
// member was of a wrong type, rules contradicted each other, a built-in
// function failed, or the time was up. The caller must deny.
var ErrPolicy = errors.New("policy gave no decision")

// timeout bounds one evaluation. It takes 30 µs to 1 ms; a second is
// far beyond that, and still shorter than a node waits.
const timeout = time.Second

// Config says where the policy is.
type Config struct {
	// Paths are Rego or data files, or directories. Of a directory, and of those
	// below it, these are taken: *.rego, data.json, data.yaml and data.yml;
	// names that begin with a dot are not. Files named *_test.rego are tests. Required.
	Paths []string

	// Log receives a line per reload, and warnings about the policy. Optional;
	// discards by default.
	Log *slog.Logger
}

// An Engine holds a policy and decides by it. It is safe for concurrent use.
type Engine struct {
	cfg     Config // set by Load, then read-only
	current atomic.Pointer[policy]
	refusal atomic.Pointer[error] // why the files are not in use; nil if they are

	mu sync.Mutex // held while reloading
}

// Load reads, compiles and tests a policy. It starts nothing; see [Engine.Run].
// The error is of the file system, or wraps [ErrInvalid].
func Load(cfg Config) (*Engine, error) {
	if len(cfg.Paths) == 0 {
		return nil, fmt.Errorf("%w: none is configured", ErrInvalid)
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	e := &Engine{cfg: cfg}
	if err := e.Reload(context.Background()); err != nil {
		return nil, err
	}
	return e, nil
}

// Test compiles the policy at paths and runs its tests, whether they pass or
// not: it is for trying a policy out, where [Load] is for using one. The error is
// of the file system, or wraps [ErrInvalid] if the policy does not compile.
func Test(ctx context.Context, paths []string) ([]TestResult, error) {
	all, err := read(paths)
	if err != nil {
		return nil, err
	}
	p, err := compile(ctx, all)
	if err != nil {
		return nil, err
	}
	return p.test(ctx)
}

// Decide evaluates the policy for in, which it does not change. The decision is the caller's. Every error wraps
// [ErrPolicy], means to deny, and holds no value of in. The policy does not change during one evaluation. Decide
// returns within the time-out, or when ctx is done, but for a built-in function that takes longer on its own.
func (e *Engine) Decide(ctx context.Context, in *Input) (d *Decision, err error) {
	p := e.current.Load()
	defer func() {
		if r := recover(); r != nil {
			d, err = nil, fmt.Errorf("%w: panic: %s", ErrPolicy, redact(fmt.Sprint(r)))
		}
	}()
	input, err := in.value(p.input)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPolicy, err)
	}
	// Not a context with a time-out: that would cost a goroutine per decision.
	cancel := topdown.NewCancel()
	defer time.AfterFunc(timeout, cancel.Cancel).Stop()
	defer context.AfterFunc(ctx, cancel.Cancel)()
	results, err := p.query.Eval(ctx, rego.EvalParsedInput(input), rego.EvalTime(in.Time), rego.EvalExternalCancel(cancel), rego.EvalMetrics(metrics.NoOp()))
	if err != nil {
		if cancel.Cancelled() { //nolint:misspell // OPA spells it so
			return nil, fmt.Errorf("%w: %w (limit %v): %s", ErrPolicy, cmp.Or(ctx.Err(), context.DeadlineExceeded), timeout, redact(err.Error()))
		}
		return nil, fmt.Errorf("%w: %s", ErrPolicy, redact(err.Error()))
	}
	if len(results) != 1 || len(results[0].Expressions) != 1 {
		return nil, fmt.Errorf("%w: %d results, want 1", ErrPolicy, len(results))
	}
	result, _ := results[0].Expressions[0].Value.(ast.Value)
	d, err = newDecision(result)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPolicy, err)
	}
	d.Digest = p.digest
	return d, nil
}

// Digest returns the hex SHA-256 over names and contents of the policy's
// modules and data, tests left out: what decides. Names are relative to the
// configured paths, so that provisioners which keep one policy in different
// places agree on it.
func (e *Engine) Digest() string { return e.current.Load().digest }

// Reload reads the policy again and uses it from the next decision on, if it
// compiles and its tests pass. Otherwise the policy stays what it was, and
// the error says why: it is of the file system, wraps [ErrInvalid], or is
// the context's. Concurrent calls take turns.
func (e *Engine) Reload(ctx context.Context) error {
	_, err := e.reload(ctx)
	return err
}

// Refused returns why the files as they were last read are not in use, nil if
// they are.
func (e *Engine) Refused() error {
	if err := e.refusal.Load(); err != nil {
		return *err
	}
	return nil
}

// reload is Reload, and reports whether there is a new policy. Files that are
// those in use are not compiled again.
func (e *Engine) reload(ctx context.Context) (changed bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	defer func() {
		switch {
		case err == nil:
			e.refusal.Store(nil)
		case ctx.Err() == nil: // else it was broken off
			e.refusal.Store(&err)
		}
	}()
	all, err := read(e.cfg.Paths)
	if err != nil {
		return false, err
	}
	files := digest(all, func(source) bool { return true })
	if now := e.current.Load(); now != nil && now.files == files {
		return false, nil
	}
	p, err := compile(ctx, all)
	if err != nil {
		return false, err
	}
	results, err := p.test(ctx)
	if err == nil {
		err = failures(results)
	}
	if err != nil {
		return false, err
	}
	for _, rule := range p.unused {
		e.cfg.Log.WarnContext(ctx, "policy has a rule that is no member of the decision and that no other rule uses", "rule", rule)
	}
	if p.untried {
		e.cfg.Log.WarnContext(ctx, "policy has no tests")
	}
	e.current.Store(p)
	return true, nil
}
