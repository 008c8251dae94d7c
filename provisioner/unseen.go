package provisioner

import (
	"context"
	"errors"
	"slices"

	"muster/internal/wire"
	"muster/policies"
)

// asUnseen has whoever asks for a name that is another's told what they would be told
// of one that nobody has ever had: a token lies on every machine, and with a refusal of
// its own for names on record, or a wait of another length, it would list the fleet.
// err is the refusal of [attempt.classify], and returned with no more than that
// added. Where a name that nobody has would be given out, it is told as
// [wire.Code.ToldAs] says: who would get it sees that it does not.
//
// The node itself, by its key or by the word of one, is told how its name stands.
func (a *attempt) asUnseen(ctx context.Context, err error) error {
	var r *Refusal
	if a.renewal || !errors.As(err, &r) || r.Code != wire.CodeIdentityTaken && r.Code != wire.CodeIdentityRevoked {
		return err
	}
	if a.record != nil && (slices.Contains(a.record.Lineage, a.csr.KeyHash) || slices.Contains(a.record.Lineage, a.vouching)) {
		return err
	}
	r.As = a.toldOfUnseen(ctx)
	return r
}

// toldOfUnseen returns the code with which the attempt would be refused if nobody had ever
// had its name, up to the policy's verdict; "" if that lets it in. It takes the steps of
// [attempt.round], and leaves nothing behind: no decision was made.
func (a *attempt) toldOfUnseen(ctx context.Context) wire.Code {
	free := &attempt{proof: a.proof, findings: findings{reason: ReasonNew}}
	free.renewal = false
	for _, check := range []func() error{free.checkPaused, free.roomFor} {
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

// verdictCodes says as what a verdict refuses; [policies.VerdictAllow] does not.
var verdictCodes = map[policies.Verdict]wire.Code{
	policies.VerdictDeny:     wire.CodeDenied,
	policies.VerdictShutdown: wire.CodeShutdown,
	policies.VerdictDefer:    wire.CodeDeferred,
	policies.VerdictApproval: wire.CodeApprovalPending,
}
