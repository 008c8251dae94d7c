package provisioner

import (
	"context"
	"errors"
	"time"

	"muster/provisioner/trust"

	"muster/provisioner/orders"

	"muster/internal/wire"
)

// Forecast returns the code with which the key of an open approval will be refused, or "". It ignores policy and token.
// r is the record and g the newest grant; each may be nil. [wire.CodeApprovalPending] means that the approval is void.
func (p *Provisioner) Forecast(ctx context.Context, a *orders.Answer, r *Record, g *orders.Grant) wire.Code {
	if p.Fresh() != nil || p.SyncRevocations(ctx, r) != nil {
		return wire.CodeRevocationsUnknown
	}
	if p.revocations.Key(a.KeyHash) != nil || p.revocations.Outstanding(a.Identity, r.AppliedRevocation()) != nil ||
		StateOf(r) == StateRevoked {
		return wire.CodeIdentityRevoked
	}
	reason, err := classify(r, claim{
		identity:  a.Identity,
		keyHash:   a.KeyHash,
		grant:     g,
		requested: p.now(),
	})
	if errors.Is(err, errTaken) && r.Awaits() {
		reason, err = ReasonNew, nil
	}
	if err != nil {
		// The name is not taken if an owner's key vouches for this one: the request waits for approval.
		w, _, err := p.cfg.Store.Waiter(ctx, a.Identity, a.KeyHash)
		switch {
		case err != nil && !errors.Is(err, trust.ErrRecord):
			return storeCode(err)
		case err != nil, w == nil, w.Code != wire.CodeApprovalPending, !w.LastAsked.After(r.OwnedSince):
			return wire.CodeIdentityTaken
		}
	}
	switch {
	case !p.approvalCounts(a, r, reason):
		return wire.CodeApprovalPending
	case p.logs.Pauses.About(false, "", "") != nil:
		return wire.CodePaused
	}
	return ""
}

// An approval from before a revocation or retirement was for the former owner.
func (p *Provisioner) approvalCounts(a *orders.Answer, r *Record, reason Reason) bool {
	if !r.admittedBy(a, reason, p.now()) {
		return false
	}
	out, _ := p.revocations.About(a.Identity)
	return out == nil || a.At.After(out.At)
}

// GrantApplies reports whether the grant, which may be nil, still admits its key.
func (r *Record) GrantApplies(g *orders.Grant, now time.Time) bool {
	switch state := StateOf(r); {
	case g == nil, state == StateRevoked:
		return false
	case g.Secret != "":
		return g.Open(now) && (r == nil || r.Grant != g.ID)
	case state == StateNone, state == StateRetired && !r.Awaiting:
		return false
	}
	return r.grantedBy(g, g.KeyHash, now)
}
