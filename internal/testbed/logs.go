package testbed

import (
	"context"
	"fmt"

	"muster/provisioner/orders"

	"muster/provisioner/trust"
)

// Logs implements [provisioner.Store].
func (f *Faults) Logs() *orders.Logs {
	logs := WrapLogs(f.Store.Logs(), func(ctx context.Context, kind string, put Put) (trust.Revision, error) {
		entries := &f.entries
		if kind == "Revocation" {
			entries = &f.revocations
		}
		return write(ctx, entries, nil, func(context.Context) (trust.Revision, error) { return put() })
	})
	fresh := logs.Fresh
	logs.Fresh = func() error {
		if f.stale.Load() {
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
