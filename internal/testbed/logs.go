package testbed

import (
	"context"
	"fmt"

	"muster/provisioner"
	"muster/provisioner/trust"
)

// Logs implements [provisioner.Store].
func (f *Faults) Logs() *provisioner.Logs {
	logs := WrapLogs(f.Store.Logs(), func(ctx context.Context, kind string, put Put) (trust.Revision, error) {
		entries := &f.entries
		if kind == "Revocation" {
			entries = &f.revocations
		}
		return write(ctx, entries, nil, func(context.Context) (trust.Revision, error) { return put() })
	})
	fresh := logs.Fresh
	logs.Fresh = func() error {
		if f.blind.Load() {
			return fmt.Errorf("%w: %w", trust.ErrRevocationsUnknown, ErrInjected)
		}
		return fresh()
	}
	return logs
}

// WrapLogs returns logs of which each write goes through put.
func WrapLogs(l *provisioner.Logs, put Through) *provisioner.Logs {
	revocations := wrapped[*trust.Revocation]{l.Revocations, "Revocation", put}
	allowances := l.Allowances
	allowances.Log = wrapped[*provisioner.Allowance]{l.Allowances, "Allowance", put}
	return &provisioner.Logs{
		Revocations: revocations,
		Pauses:      provisioner.Pauses{Log: wrapped[*provisioner.Pause]{l.Pauses, "Pause", put}},
		Answers:     provisioner.Answers{Log: wrapped[*provisioner.Answer]{l.Answers, "Answer", put}},
		Grants:      wrapped[*provisioner.Grant]{l.Grants, "Grant", put},
		Allowances:  allowances,
		Signers:     wrapped[*trust.SignerEntry]{l.Signers, "Signer", put},
		Operators:   trust.Operators{Log: wrapped[*trust.OperatorEntry]{l.Operators, "Operator", put}, Revocations: revocations},
		Recovery:    wrapped[*provisioner.Recovery]{l.Recovery, "Recovery", put},
		Unfrozen:    wrapped[*provisioner.Unfreeze]{l.Unfrozen, "Unfreeze", put},
		Sync:        l.Sync,
		Fresh:       l.Fresh,
	}
}

// A Put is a write to a log.
type Put func() (trust.Revision, error)

// A Through makes a write to the log of a kind, such as "Pause", or has it go wrong.
type Through func(ctx context.Context, kind string, put Put) (trust.Revision, error)

// wrapped is a log of which each write goes through put.
type wrapped[V any] struct {
	trust.Log[V]

	kind string
	put  Through
}

// Put implements [trust.Log].
func (w wrapped[V]) Put(ctx context.Context, key string, v V, expected trust.Revision) (trust.Revision, error) {
	return w.put(ctx, w.kind, func() (trust.Revision, error) { return w.Log.Put(ctx, key, v, expected) })
}
