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

func storeCode(err error) wire.Code {
	if errors.Is(err, trust.ErrRecord) {
		return wire.CodeUnavailable
	}
	if errors.Is(err, trust.ErrStoreFull) {
		return wire.CodeStorageLow
	}
	return wire.CodeStoreUnavailable
}

// checkStore refuses while the store is down, so that nodes do not wait for a time-out.
func (w *records) checkStore(node string) error {
	if err := w.cfg.Alarms.Stands(wire.CodeStoreUnavailable); err != nil {
		return refuse(node, wire.CodeStoreUnavailable, err)
	}
	return nil
}

// checkStorage refuses new identities, to leave room for renewals, confirmations and revocations.
func (a *attempt) checkStorage() error {
	if a.reason != ReasonNew {
		return nil
	}
	if err := a.cfg.Alarms.Stands(wire.CodeStorageLow); err != nil {
		return refuse(string(a.identity), wire.CodeStorageLow, err)
	}
	return nil
}

// The alarm stays this long, or a policy that fails for some requests would raise it with each.
const policyQuiet = time.Minute

// policyHealth clears the policy's alarm once the policy has changed or has not failed for [policyQuiet].
type policyHealth struct {
	last atomic.Pointer[policyFailure] // nil while healthy, so that this needs no lock
}

type policyFailure struct {
	digest string
	at     time.Time
}

func (h *policyHealth) failed(ctx context.Context, alarms *events.Alarms, digest string, err error) {
	h.last.Store(&policyFailure{digest, time.Now()})
	alarms.Raise(ctx, wire.CodePolicyFailed, err)
}

func (h *policyHealth) decided(ctx context.Context, alarms *events.Alarms, digest string) {
	f := h.last.Load()
	if f == nil || digest == f.digest && time.Since(f.at) < policyQuiet {
		return
	}
	if h.last.CompareAndSwap(f, nil) {
		alarms.Clear(ctx, wire.CodePolicyFailed)
	}
}

func issueCode(err error) wire.Code {
	if errors.Is(err, ca.ErrExpired) {
		return wire.CodeAuthorityExpired
	}
	return wire.CodeCertificateFailed
}
