// Package helper runs the program that makes a node's configuration, by the
// contract of Choria's provisioner: one JSON document on its standard input,
// one on its standard output, one process per node. Helpers written for
// Choria work if they leave certificates to muster.
//
// # Contract
//
// Standard input is what [Request] says, in Choria's layout:
//
//	{
//	  "identity": "web1.example.net",
//	  "csr": {"csr": "<PEM>", "public_key": "<PEM>", "ssldir": ""},
//	  "ed25519_pubkey": null,
//	  "inventory": "<a JSON object as text: facts, classes, agents, ...>",
//	  "jwt": {"cht": "", "chpwd": "", "chs": false, "chu": "...", ...}
//	}
//
// Standard output is one JSON object of at most 1 MiB:
//
//	{
//	  "defer": false, "msg": "", "shutdown": false,
//	  "configuration": {"key": "value"},
//	  "action_policies": {"name": "text"},
//	  "opa_policies": {"name": "text"}
//	}
//
// All members are optional and null is the same as none. Choria's key,
// certificate, ca, ssldir, server_claims and upgrade must be empty: muster
// issues certificates itself. Anything else is refused, so that a misspelled
// "defer" does not let a node in. Standard error goes to the log. The exit
// status is 0, or the output does not count.
//
// The process gets PATH, HOME, LANG, TZ and TMPDIR of ours and nothing else, since our environment may hold a passphrase. It is the leader
// of a process group, which is killed when it ends or its time is up.
//
// # Trust
//
// The helper is the operators' own program. What it is given of the node is
// proven (identity, key, claims) or not (facts); what it gives is checked for
// shape and goes to the node.
package helper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"muster/internal/wire"
)

// Reasons why a helper gave no response. An error of [Helper.Configure] wraps
// exactly one; the text around it is for operators. All of them mean that
// nothing is known and that the node may come again.
var (
	// ErrFailed means that the helper could not be started, or ended with a
	// status other than 0, or was stopped because the caller no longer waits.
	ErrFailed = errors.New("helper failed")

	// ErrTimeout means that its time was up, or the caller's deadline passed,
	// perhaps before its turn came. If it ran, it was killed.
	ErrTimeout = errors.New("helper timed out")

	// ErrOutput means that what it printed is not what the contract asks for.
	ErrOutput = errors.New("helper gave no usable output")
)

// maxOutput bounds standard output: twice what a reply can carry, wire.MaxReplyBytes.
const maxOutput = 1 << 20

// Defaults of [Config].
const (
	DefaultTimeout = 10 * time.Second // as in Choria

	// DefaultConcurrency is how many helpers run at once. They mostly wait for
	// some inventory to answer; chosen, not measured.
	DefaultConcurrency = 16
)

// Config configures [New].
type Config struct {
	// Command is the program and its arguments. A name without a
	// slash is looked up in PATH. No shell is involved. Required.
	Command []string

	// Timeout bounds one run, from its start. Optional; [DefaultTimeout].
	Timeout time.Duration

	// Concurrency bounds how many run at once; others wait. Optional;
	// [DefaultConcurrency].
	Concurrency int

	// Log receives what a helper prints on standard error. Optional; discards
	// by default.
	Log *slog.Logger
}

// A Helper runs a command per node. It is safe for concurrent use.
type Helper struct {
	cfg       Config        // set by New, then read-only
	path      string        // of the program, absolute
	env       []string      // whole environment of the process
	slots     chan struct{} // one element per running process
	approvals chan struct{} // one element per call of Approve
}

// New checks that the command exists and can be executed, and starts nothing.
// The program may be replaced while the provisioner runs.
func New(cfg Config) (*Helper, error) {
	if len(cfg.Command) == 0 {
		return nil, errors.New("helper: no command")
	}
	h := &Helper{}
	path, err := exec.LookPath(cfg.Command[0])
	if err == nil {
		h.path, err = filepath.Abs(path)
	}
	if err != nil {
		return nil, fmt.Errorf("helper: %w", err) // it names the program
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, DefaultTimeout)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	h.cfg = cfg
	h.slots = make(chan struct{}, cmp.Or(cfg.Concurrency, DefaultConcurrency)) // one place per process
	h.approvals = make(chan struct{}, maxApprovals*cap(h.slots))
	for _, name := range []string{"PATH", "HOME", "LANG", "TZ", "TMPDIR"} {
		if v, ok := os.LookupEnv(name); ok {
			h.env = append(h.env, name+"="+v)
		}
	}
	return h, nil
}

// Check returns why the program cannot be run now, or nil. It starts nothing.
func (h *Helper) Check() error {
	_, err := exec.LookPath(h.path)
	return err
}

// Configure runs the helper for one node and returns what it answered. It
// waits for its turn first, for as long as ctx allows. The error wraps one of
// the sentinels of this package, and the context's if that is why. The helper
// may have done whatever it does even so.
func (h *Helper) Configure(ctx context.Context, r Request) (*Response, error) {
	input, err := r.encode()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFailed, err)
	}
	done, err := h.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	start := time.Now() // elapsed time only; a run is never dated
	output, stderr, err := h.run(ctx, input)
	elapsed := time.Since(start)

	var response *Response
	if err == nil {
		response, err = decode(output)
	}
	// The error is the caller's to log. What the helper printed is not in it,
	// since that may say more than a refusal should.
	if len(stderr) > 0 {
		level := slog.LevelDebug
		if err != nil {
			level = slog.LevelWarn
		}
		h.cfg.Log.LogAttrs(ctx, level, "helper printed on standard error", slog.String("node", r.Identity),
			slog.Duration("elapsed", elapsed), slog.Bool("ok", err == nil), slog.String("stderr", string(stderr)))
	}
	return response, err
}

// turn waits until the command may run, for as long as ctx allows. done ends it.
func (h *Helper) acquire(ctx context.Context) (done func(), err error) {
	select {
	case h.slots <- struct{}{}:
		return func() { <-h.slots }, nil
	case <-ctx.Done():
	}
	why := ErrFailed
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		why = ErrTimeout
	}
	return nil, fmt.Errorf("%w: waiting for its turn (%d run already): %w", why, cap(h.slots), ctx.Err())
}

// checkFiles confines the names of pushed policies, which become file names on the node.
func checkFiles(f wire.Files) error {
	for member, files := range map[string]map[string]string{"action_policies": f.ActionPolicies, "opa_policies": f.OPAPolicies} {
		for name := range files {
			if !wire.ValidPolicyName(name) {
				return fmt.Errorf("%s: name %.80q, want 1 to %d of A-Z a-z 0-9 _ . -, the first not a dot",
					member, name, wire.MaxPolicyName)
			}
		}
	}
	return nil
}
