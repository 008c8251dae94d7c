package provisioner

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"muster/provisioner/trust"

	"muster/internal/wire"
	"muster/provisioner/ca"
	"muster/provisioner/events"
)

// storeCode is the code of a store's error. A record that cannot be read is one
// identity's trouble; anything else may be everybody's.
func storeCode(err error) wire.Code {
	if errors.Is(err, trust.ErrRecord) {
		return wire.CodeUnavailable
	}
	if errors.Is(err, trust.ErrStoreFull) {
		return wire.CodeStorageLow
	}
	return wire.CodeStoreUnavailable
}

// writable returns a refusal while the store is known to be away: what cannot
// be put on record is not begun, and the node does not wait for a time-out.
func (w *records) writable(node string) error {
	if err := w.cfg.Alarms.Stands(wire.CodeStoreUnavailable); err != nil {
		return refuse(node, wire.CodeStoreUnavailable, err)
	}
	return nil
}

// roomFor returns a refusal if the attempt would add to a disk that is nearly
// full. What is left of it is for those who are on record: their renewals,
// confirmations and revocations go on.
func (a *attempt) roomFor() error {
	if a.reason != ReasonNew {
		return nil
	}
	if err := a.cfg.Alarms.Stands(wire.CodeStorageLow); err != nil {
		return refuse(string(a.identity), wire.CodeStorageLow, err)
	}
	return nil
}

// policyQuiet is how long a policy must not have failed before its alarm is
// cleared: one that fails for some requests and not for others would otherwise
// raise it again with each. Chosen.
const policyQuiet = time.Minute

// policyHealth owns the alarm of the policy. It is raised when an evaluation
// fails, and cleared by one that does not if the policy has been changed
// since, or has been quiet for [policyQuiet]. The zero value is ready.
type policyHealth struct {
	last atomic.Pointer[policyFailure] // nil while it is well, so that a healthy policy costs no lock
}

type policyFailure struct {
	digest string    // of the policy
	at     time.Time // monotonic
}

// failed takes in that the policy gave no decision.
func (h *policyHealth) failed(ctx context.Context, alarms *events.Alarms, digest string, err error) {
	h.last.Store(&policyFailure{digest, time.Now()})
	alarms.Raise(ctx, wire.CodePolicyFailed, err)
}

// decided takes in that it gave one.
func (h *policyHealth) decided(ctx context.Context, alarms *events.Alarms, digest string) {
	f := h.last.Load()
	if f == nil || digest == f.digest && time.Since(f.at) < policyQuiet {
		return
	}
	if h.last.CompareAndSwap(f, nil) {
		alarms.Clear(ctx, wire.CodePolicyFailed)
	}
}

// issueCode is the code of an authority's error.
func issueCode(err error) wire.Code {
	if errors.Is(err, ca.ErrExpired) {
		return wire.CodeAuthorityExpired
	}
	return wire.CodeCertificateFailed
}
