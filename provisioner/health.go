package provisioner

import (
	"errors"
	"time"

	"muster/provisioner/trust"

	"muster/internal/wire"
	"muster/provisioner/ca"
)

// StoreCode returns the code for an error of the store.
func StoreCode(err error) wire.Code {
	if errors.Is(err, trust.ErrRecord) {
		return wire.CodeUnavailable
	}
	if errors.Is(err, trust.ErrStoreFull) {
		return wire.CodeStorageLow
	}
	return wire.CodeStoreUnavailable
}

// checkStore refuses while the store is down, so that nodes do not wait for a time-out.
func (w *records) checkStore() error {
	if err := w.cfg.Alarms.Stands(wire.CodeStoreUnavailable); err != nil {
		return refuse(wire.CodeStoreUnavailable, err)
	}
	return nil
}

// checkStorage refuses new identities, to leave room for renewals, confirmations and revocations.
func (a *attempt) checkStorage() error {
	if a.reason != ReasonNew {
		return nil
	}
	if err := a.cfg.Alarms.Stands(wire.CodeStorageLow); err != nil {
		return refuse(wire.CodeStorageLow, err)
	}
	return nil
}

// The alarm stays this long, or a policy that fails for some requests would raise it with each.
const policyQuiet = time.Minute

// A policyFailure is the last failure of the policy with this digest.
type policyFailure struct {
	digest string
	at     time.Time
	err    error
}

// policyFailed returns the cause of [wire.CodePolicyFailed], or nil.
func (w *watcher) policyFailed() error {
	f := w.policy.Load()
	if f == nil || f.digest != w.cfg.Policy.Digest() || time.Since(f.at) > policyQuiet {
		return nil
	}
	return f.err
}

// IssueCode returns the code for an error of [ca.Authority.Issue].
func IssueCode(err error) wire.Code {
	if errors.Is(err, ca.ErrExpired) {
		return wire.CodeAuthorityExpired
	}
	return wire.CodeCertificateFailed
}
