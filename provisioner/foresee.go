package provisioner

import (
	"context"
	"errors"
	"slices"
	"time"

	"muster/provisioner/trust"

	"muster/provisioner/orders"

	"muster/internal/wire"
)

// Foresee says what the key of an approval is told when it asks next, as far as its name, its
// key and what operators have said decide that: the code it is refused with, or "" if it gets
// in. The policy and the machine's token still have their say. r is the record of the identity
// and g the newest grant for it; each may be nil. Whether a is open is for [orders.Answer.Open].
//
// It asks what enrollment asks, so that nobody is promised what does not come:
//   - [wire.CodeIdentityRevoked]: the name is revoked, or the key is
//   - [wire.CodeIdentityTaken]: the name belongs to another key
//   - [wire.CodeApprovalPending]: the approval is none any more, since the name was taken
//     away from the machine that had it, or another approval was spent
//   - [wire.CodePaused]: it counts, and enrollment is paused everywhere
//   - any other: that cannot be said now, for this reason
func (p *Provisioner) Foresee(ctx context.Context, a *orders.Answer, r *Record, g *orders.Grant) wire.Code {
	if p.Fresh() != nil || p.KnowFollowed(ctx, r) != nil {
		return wire.CodeRevocationsUnknown
	}
	if p.revocations.Key(a.KeyHash) != nil || p.revocations.Outstanding(a.Identity, r.Followed()) != nil || r.state() == StateRevoked {
		return wire.CodeIdentityRevoked
	}
	reason, err := classify(r, claim{identity: a.Identity, keyHash: a.KeyHash, grant: g, requested: p.now()})
	if err != nil {
		// It may be vouched for, as in a renewal: then it has come as far as to wait for an
		// approval since the name has its owner.
		w, _, err := p.cfg.Store.Waiter(ctx, a.Identity, a.KeyHash)
		switch {
		case err != nil && !errors.Is(err, trust.ErrRecord):
			return storeCode(err)
		case err != nil, w == nil, w.Code != wire.CodeApprovalPending, !w.LastAsked.After(r.OwnedSince):
			return wire.CodeIdentityTaken
		}
	}
	switch {
	case !p.counts(a, r, reason):
		return wire.CodeApprovalPending
	case p.logs.Pauses.About(false, "", "") != nil:
		return wire.CodePaused
	}
	return ""
}

// counts reports whether the approval, which may be nil, lets its key have the identity of r,
// which may be nil, on the ground of reason. What was said before the name was taken away
// was of the machine that had it, also if that got in by other means and never spent it.
func (p *Provisioner) counts(a *orders.Answer, r *Record, reason Reason) bool {
	if !r.admittedBy(a, reason, p.now()) {
		return false
	}
	out, _ := p.revocations.About(a.Identity)
	return out == nil || a.At.After(out.At)
}

// Granted reports whether the grant lets its key, or the next other key if it is for any, have
// the identity of r, which may be nil: its time is not over, it is not spent, and the machine
// that it was given against still has the name. A nil grant lets nobody.
func (r *Record) Granted(g *orders.Grant, now time.Time) bool {
	return g != nil && slices.Contains([]State{StateEnrolled, StateProvisioned}, r.state()) && r.grantedBy(g, g.KeyHash, now)
}
