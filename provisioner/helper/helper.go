// Package helper runs the program that makes a node's configuration. The contract is that of Choria's provisioner: one
// process per node, JSON on standard input and output. Helpers written for Choria work if they leave certificates to
// muster.
//
// # Contract
//
// Standard input is a [Request] in Choria's layout:
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
// All members are optional; null means absent. Choria's key, certificate, ca, ssldir, server_claims and upgrade must be
// empty. Other members are refused, so that a misspelled "defer" admits no node. Standard error goes to the log. The
// exit status must be 0.
//
// The process gets only PATH, HOME, LANG, TZ and TMPDIR, since the provisioner's environment may hold a passphrase. The
// process leads a process group, which is killed when the process ends or times out. Facts are unproven.
package helper

import (
	"bytes"
	"cmp"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"muster/internal/limit"
	"muster/internal/wire"
)

// Errors of [Helper.Configure].
var (
	// ErrFailed means that the helper failed, or was stopped because its caller was canceled.
	ErrFailed = errors.New("helper failed")

	// ErrBusy means that the calls for the node's address use up their share. Try again later.
	ErrBusy = errors.New("helper busy")

	// ErrTimeout means that a time limit or deadline passed.
	ErrTimeout = errors.New("helper timed out")

	// ErrOutput means that the output does not follow the contract.
	ErrOutput = errors.New("helper gave no usable output")
)

// maxOutput bounds standard output: twice wire.MaxReplyBytes.
const maxOutput = 1 << 20

// Defaults of [Config].
const (
	DefaultTimeout = 10 * time.Second // as in Choria

	// DefaultConcurrency suits helpers that wait for an inventory.
	DefaultConcurrency = 16
)

// Config configures [New].
type Config struct {
	// Command is the program and its arguments, without a shell. Required.
	Command []string

	// Timeout bounds one run. Default [DefaultTimeout].
	Timeout time.Duration

	// Concurrency bounds concurrent runs. Default [DefaultConcurrency].
	Concurrency int

	// Log receives standard error. Default discards.
	Log *slog.Logger
}

// A Helper runs a command per node. It is safe for concurrent use.
type Helper struct {
	cfg   Config        // read-only
	path  string        // of the program, absolute
	env   []string      // whole environment of the process
	slots chan struct{} // one element per running process

	// share has every call that runs or waits. So the calls for one address cannot take all slots and workers.
	share *limit.Shares[netip.Prefix]
}

// callsPerSlot bounds the calls that run or wait: a command that hangs must not block all 256 workers.
const callsPerSlot = 4

// New checks that the command can be executed.
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
		return nil, fmt.Errorf("helper: %w", err) // names the program
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, DefaultTimeout)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	h.cfg = cfg
	h.slots = make(chan struct{}, cmp.Or(cfg.Concurrency, DefaultConcurrency))
	h.share = limit.NewShares[netip.Prefix](callsPerSlot * cap(h.slots))
	for _, name := range []string{"PATH", "HOME", "LANG", "TZ", "TMPDIR"} {
		if v, ok := os.LookupEnv(name); ok {
			h.env = append(h.env, name+"="+v)
		}
	}
	return h, nil
}

// Check returns why the program cannot be run, or nil.
func (h *Helper) Check() error {
	_, err := exec.LookPath(h.path)
	return err
}

// Configure runs the helper for one node, once a slot is free.
func (h *Helper) Configure(ctx context.Context, r Request) (*Response, error) {
	input, err := r.encode()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFailed, err)
	}
	done, err := h.acquire(ctx, r.Source)
	if err != nil {
		return nil, err
	}
	defer done()
	start := time.Now() // elapsed time only
	output, stderr, err := h.run(ctx, input)
	elapsed := time.Since(start)

	var response *Response
	if err == nil {
		response, err = decode(output)
	}
	// The error leaves out standard error, which may say more than a refusal should.
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

// acquire waits for a slot within the share of source. Call done when the process has ended.
func (h *Helper) acquire(ctx context.Context, source netip.Prefix) (done func(), err error) {
	if !h.share.Acquire(source, 1) {
		return nil, fmt.Errorf("%w: not run: too many nodes from %s already wait for it", ErrBusy, source)
	}
	select {
	case h.slots <- struct{}{}:
		return func() { <-h.slots; h.share.Release(source, 1) }, nil
	case <-ctx.Done():
	}
	h.share.Release(source, 1)
	why := ErrFailed
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		why = ErrTimeout
	}
	return nil, fmt.Errorf("%w: waiting for a free slot (%d running): %w", why, cap(h.slots), ctx.Err())
}

// Approve asks the command whether a node may have a certificate, like Puppet's policy-based autosigning. The last
// argument is the identity, standard input is the CSR in PEM, and exit status 0 approves. Otherwise the first line of
// standard output is in the error, for operators. Errors wrap [ErrFailed], [ErrBusy], [ErrTimeout] or [ErrOutput].
func (h *Helper) Approve(ctx context.Context, id wire.Identity, source netip.Prefix, csr []byte) error {
	done, err := h.acquire(ctx, source)
	if err != nil {
		return fmt.Errorf("autosign: %w", err)
	}
	defer done()
	start := time.Now() // elapsed time only
	input := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: csr})
	stdout, stderr, err := h.run(ctx, input, string(id))
	h.cfg.Log.LogAttrs(ctx, slog.LevelInfo, "autosign decided", slog.String("node", string(id)),
		slog.Bool("ok", err == nil),
		slog.Duration("elapsed", time.Since(start)), slog.String("stderr", string(stderr)))
	if err == nil {
		return nil
	}
	if words := firstLine(stdout); words != "" {
		err = fmt.Errorf("%w: %s", err, words)
	}
	return fmt.Errorf("autosign: %w", err)
}

// maxWords bounds what an autosign command says to operators.
const maxWords = 300

func firstLine(output []byte) string {
	line, _, _ := bytes.Cut(bytes.TrimSpace(output), []byte("\n"))
	printable := func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}
	return strings.Map(printable, strings.ToValidUTF8(string(line[:min(len(line), maxWords)]), ""))
}
