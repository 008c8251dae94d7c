// Package policies evaluates the operators' Rego policy for each request. It is the only package that uses OPA.
//
// A policy cannot reach network, environment or clock, its evaluation has a time limit, and every error denies. Members
// of [Input] and [Decision] are never renamed and never change type.
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
	"github.com/open-policy-agent/opa/v1/topdown/print"

	"muster/internal/wire"
)

// ErrInvalid means that the policy's files do not compile, fail their tests, or are missing. The text lists every fault
// with file and line.
var ErrInvalid = errors.New("policy cannot be used")

// ErrPolicy means that the evaluation failed, exceeded its time limit, or gave an invalid decision. The caller must
// deny.
var ErrPolicy = errors.New("policy gave no decision")

// timeout bounds an evaluation, which takes 30 µs to 1 ms. Nodes wait longer.
const timeout = time.Second

// Config configures [Load].
type Config struct {
	// Paths are files or directories. In directories *.rego, data.json, data.yaml and data.yml are read; names that
	// begin with a dot are not. *_test.rego are tests. Required.
	Paths []string

	// Judge returns an error for a file that other users could change. Optional.
	Judge func(path string) error

	// Log defaults to discarding.
	Log *slog.Logger

	// Follow does for [Engine.Preview] what enrollment does after a decision: it makes and checks the node's files, and
	// checks its certificate. It writes and issues nothing. Nil: nothing follows.
	Follow func(context.Context, *Input, *Decision) (wire.Files, error)

	// Print gets what the policy prints. Nil: it is logged at level debug.
	Print func(text string)
}

// An Engine decides by a policy. It is safe for concurrent use.
type Engine struct {
	cfg     Config // read-only after Load
	current atomic.Pointer[policy]
	refusal atomic.Pointer[error] // error of the files; nil: they are in use

	mu sync.Mutex // held while reloading
}

// Load reads, compiles and tests a policy. The error comes from the file system, or wraps [ErrInvalid].
func Load(cfg Config) (*Engine, error) {
	if len(cfg.Paths) == 0 {
		return nil, fmt.Errorf("%w: none is configured", ErrInvalid)
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.Print == nil {
		cfg.Print = func(text string) { cfg.Log.Debug("policy printed", "text", text) }
	}
	e := &Engine{cfg: cfg}
	if err := e.Reload(context.Background()); err != nil {
		return nil, err
	}
	return e, nil
}

// Test compiles the policy and runs all its tests, even after one has failed. Errors are those of [Load], and warnings
// those of [Engine.Warnings].
func Test(ctx context.Context, cfg Config) (results []TestResult, warnings []string, err error) {
	all, err := read(cfg.Paths, cfg.Judge)
	if err != nil {
		return nil, nil, err
	}
	p, err := compile(ctx, all, cfg)
	if err != nil {
		return nil, nil, err
	}
	results, err = p.test(ctx)
	return results, p.warnings, err
}

// Decide evaluates the policy: data.muster.certificate if in asks for a service certificate, else data.muster.enroll.
// Every error wraps [ErrPolicy], means to deny, and quotes no value of in. It returns
// within a second, unless a single built-in function takes longer.
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
	// A context with a time-out would cost a goroutine per decision.
	cancel := topdown.NewCancel()
	defer time.AfterFunc(timeout, cancel.Cancel).Stop()
	defer context.AfterFunc(ctx, cancel.Cancel)()
	path := enrollPath
	if in.Certificate != nil {
		path = servicePath
	}
	results, err := p.queries[path].Eval(ctx, rego.EvalParsedInput(input), rego.EvalTime(in.Time),
		rego.EvalExternalCancel(cancel), rego.EvalMetrics(metrics.NoOp()), rego.EvalPrintHook(printer(e.cfg.Print)))
	if err != nil {
		if cancel.Cancelled() { //nolint:misspell // OPA spells it so
			return nil, fmt.Errorf("%w: %w (limit %v): %s",
				ErrPolicy, cmp.Or(ctx.Err(), context.DeadlineExceeded), timeout, redact(err.Error()))
		}
		return nil, fmt.Errorf("%w: %s", ErrPolicy, redact(err.Error()))
	}
	if len(results) != 1 || len(results[0].Expressions) != 1 {
		return nil, fmt.Errorf("%w: %d results, want 1", ErrPolicy, len(results))
	}
	result, _ := results[0].Expressions[0].Value.(ast.Value)
	service := in.Certificate != nil
	d = &Decision{Digest: p.digest, Certificate: Certificate{ServerAuth: service}}
	if err := d.read(result); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPolicy, err)
	}
	if c := d.Certificate; service && len(c.DNSNames)+len(c.IPAddresses)+len(c.URIs) == 0 && d.admits() {
		d.Deny = []string{"`certificate` names nothing: want dns_names, ip_addresses or uris"}
	}
	d.hide(in.CSR.Challenge)
	return d, nil
}

// Preview is [Engine.Decide], then [Engine.Follow]. The decision is nil only if there is none.
func (e *Engine) Preview(ctx context.Context, in *Input) (*Decision, wire.Files, error) {
	d, err := e.Decide(ctx, in)
	if err != nil {
		return nil, wire.Files{}, err
	}
	files, err := e.Follow(ctx, in, d)
	return d, files, err
}

// admits reports whether d admits at once or after an approval.
func (d *Decision) admits() bool {
	return d.Verdict() == VerdictAllow || d.Verdict() == VerdictApproval
}

// Follow is [Config.Follow] for a node that d admits, at once or after an approval. With an error, enrollment refuses
// the node.
func (e *Engine) Follow(ctx context.Context, in *Input, d *Decision) (wire.Files, error) {
	if e.cfg.Follow == nil || !d.admits() {
		return wire.Files{}, nil
	}
	return e.cfg.Follow(ctx, in, d)
}

// A printer is OPA's print hook.
type printer func(text string)

// Print implements [print.Hook].
func (p printer) Print(at print.Context, text string) error {
	p(fmt.Sprintf("%s: %s", at.Location, text))
	return nil
}

// Digest returns the hex SHA-256 over relative names and contents of modules and data.
func (e *Engine) Digest() string { return e.current.Load().digest }

// A File is a Rego file of the policy in use.
type File struct{ Path, Text string }

// InUse returns the Rego files, when they came into use, and the results of their tests. Values whose names are those
// of secrets are hidden. Data files are left out: they may hold secrets under any name.
func (e *Engine) InUse() (files []File, loaded time.Time, tests []TestResult) {
	p := e.current.Load()
	for _, s := range p.read {
		if !s.isData() {
			files = append(files, File{s.path, hideValues(string(s.content))})
		}
	}
	return files, p.loaded, p.results
}

// Reload reads the files again, and uses their policy if it compiles and its tests pass. Errors are those of [Load], or
// the context's. Concurrent calls take turns.
func (e *Engine) Reload(ctx context.Context) error {
	_, err := e.reload(ctx)
	return err
}

// Warnings returns what does not prevent the use of the policy, but may be a mistake, a line each: unused rules, files
// that are not read, a sample node that could not enroll.
func (e *Engine) Warnings() []string { return e.current.Load().warnings }

// Refused returns the error of the files that were read last, nil if they are in use.
func (e *Engine) Refused() error {
	if err := e.refusal.Load(); err != nil {
		return *err
	}
	return nil
}

// reload reports whether the policy is new. Unchanged files are not compiled again.
func (e *Engine) reload(ctx context.Context) (changed bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	defer func() {
		switch {
		case err == nil:
			e.refusal.Store(nil)
		case ctx.Err() == nil: // it was not interrupted
			e.refusal.Store(&err)
		}
	}()
	all, err := read(e.cfg.Paths, e.cfg.Judge)
	if err != nil {
		return false, err
	}
	files := digest(all, func(source) bool { return true })
	if now := e.current.Load(); now != nil && now.files == files {
		return false, nil
	}
	p, err := compile(ctx, all, e.cfg)
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
	for _, w := range p.warnings {
		e.cfg.Log.WarnContext(ctx, "policy may have a mistake", "err", w)
	}
	p.results, p.loaded = results, time.Now().UTC()
	e.current.Store(p)
	return true, nil
}
