package provisioner

import (
	"context"
	"errors"
	"slices"

	"muster/internal/wire"
	"muster/policies"
)

// concealExistence answers as for an unknown name, so that a token holder cannot enumerate the fleet. Keys of the
// lineage get the true code.
func (a *attempt) concealExistence(ctx context.Context, err error) error {
	var r *Refusal
	if a.renewal || !errors.As(err, &r) || r.Code != wire.CodeIdentityTaken && r.Code != wire.CodeIdentityRevoked {
		return err
	}
	if a.record != nil && (slices.Contains(a.record.Lineage, a.csr.KeyHash) ||
		slices.Contains(a.record.Lineage, a.vouching)) {
		return err
	}
	r.PublicCode = a.codeForUnknownName(ctx)
	return r
}

// codeForUnknownName returns the code that [attempt.round] would give for a new name, "" if admitted.
func (a *attempt) codeForUnknownName(ctx context.Context) wire.Code {
	free := &attempt{proof: a.proof, findings: findings{reason: ReasonNew}}
	free.renewal = false
	for _, check := range []func() error{free.checkPaused, free.checkStorage} {
		if err := check(); err != nil {
			return CodeOf(err)
		}
	}
	free.allowance = a.logs.Allowances.Match(a.identity, a.now())
	d, err := a.cfg.Policy.Decide(ctx, free.input())
	if err != nil {
		return wire.CodePolicyFailed
	}
	if d.Verdict() == policies.VerdictAllow && a.logs.InRecovery() != nil {
		return wire.CodeApprovalPending
	}
	return verdictCodes[d.Verdict()]
}

var verdictCodes = map[policies.Verdict]wire.Code{
	policies.VerdictDeny:     wire.CodeDenied,
	policies.VerdictShutdown: wire.CodeShutdown,
	policies.VerdictDefer:    wire.CodeDeferred,
	policies.VerdictApproval: wire.CodeApprovalPending,
}
