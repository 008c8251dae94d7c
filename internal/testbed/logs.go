package testbed

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"muster/provisioner/orders"
	"muster/provisioner/trust"
)

// Logs implements [provisioner.Store].
func (f *Faults) Logs() *orders.Logs {
	logs := WrapLogs(f.Store.Logs(), func(ctx context.Context, kind string, put Put) (trust.Revision, error) {
		entries := &f.EntryWrites
		if kind == "Revocation" {
			entries = &f.RevocationWrites
		}
		return write(ctx, entries, nil, func(context.Context) (trust.Revision, error) { return put() })
	})
	fresh := logs.Fresh
	logs.Fresh = func() error {
		if f.Stale.Load() {
			return fmt.Errorf("%w: %w", trust.ErrRevocationsUnknown, ErrInjected)
		}
		return fresh()
	}
	return logs
}

// WrapLogs returns logs whose writes go through put.
func WrapLogs(l *orders.Logs, put Through) *orders.Logs {
	revocations := wrapped[*trust.Revocation]{l.Revocations, "Revocation", put}
	allowances := l.Allowances
	allowances.Log = wrapped[*orders.Allowance]{l.Allowances, "Allowance", put}
	return &orders.Logs{
		Revocations: revocations,
		Pauses:      orders.Pauses{Log: wrapped[*orders.Pause]{l.Pauses, "Pause", put}},
		Answers:     orders.Answers{Log: wrapped[*orders.Answer]{l.Answers, "Answer", put}},
		Grants:      wrapped[*orders.Grant]{l.Grants, "Grant", put},
		Allowances:  allowances,
		Signers:     wrapped[*trust.SignerEntry]{l.Signers, "Signer", put},
		Operators: trust.Operators{Log: wrapped[*trust.OperatorEntry]{l.Operators, "Operator", put},
			Revocations: revocations},
		Sessions: wrapped[*orders.Sessions]{l.Sessions, "Session", put},
		Recovery: wrapped[*orders.Recovery]{l.Recovery, "Recovery", put},
		Unfrozen: wrapped[*orders.Unfreeze]{l.Unfrozen, "Unfreeze", put},
		Sync:     l.Sync,
		Fresh:    l.Fresh,
	}
}

// A Put is a write to a log.
type Put func() (trust.Revision, error)

// A Through makes a write to the log of a kind, such as "Pause", or makes it fail.
type Through func(ctx context.Context, kind string, put Put) (trust.Revision, error)

type wrapped[V any] struct {
	trust.Log[V]

	kind string
	put  Through
}

// Put implements [trust.Log].
func (w wrapped[V]) Put(ctx context.Context, key string, v V, expected trust.Revision) (trust.Revision, error) {
	return w.put(ctx, w.kind, func() (trust.Revision, error) { return w.Log.Put(ctx, key, v, expected) })
}

// logBuffer keeps the fleet's log.
type logBuffer struct {
	quiet bool

	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// last returns the lines that a failed test prints.
func (l *logBuffer) last() string {
	const most = 200
	var lines []string
	for line := range strings.Lines(l.String()) {
		if !strings.Contains(line, `"level":"DEBUG"`) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-most):], "")
}

func (l *logBuffer) logger() *slog.Logger {
	level := slog.LevelDebug
	if l.quiet {
		level = slog.LevelWarn
	}
	return slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: level}))
}
