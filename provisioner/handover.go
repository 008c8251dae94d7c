package provisioner

import (
	"context"
	"errors"
	"slices"

	"muster/internal/wire"
	"muster/provisioner/trust"
)

// handOver logs that the former keys lost the name, so that a restored store does not give it back to them. Repeating
// it is harmless: the entry has the attempt's id. A name without an owner is not lost; before may be nil.
func (w *records) handOver(ctx context.Context, before, after *Record, c trust.Cause) error {
	if s := StateOf(before); s == StateNone || s == StateRetired {
		return nil
	}
	e := trust.NewRevocation(trust.HandedOver, after.UpdatedAt, c)
	e.ID, e.Node, e.To = after.Attempt, after.Identity, after.Next.KeyHash
	e.Keys = slices.DeleteFunc(before.Keys(), func(k string) bool { return k == e.To })
	var err error
	for range maxRounds {
		if w.revocations.Knows(e.ID) || len(e.Keys) == 0 {
			return nil
		}
		_, newest := w.revocations.About(e.Node)
		if err = w.revocations.Put(ctx, e, newest); err == nil {
			return nil
		}
		if !errors.Is(err, trust.ErrConflict) {
			break
		}
	}
	return refuse(StoreCode(err), err)
}

// handOverAgain completes a hand-over whose process died.
func (w *records) handOverAgain(ctx context.Context, r *Record) error {
	if r.Next == nil || !r.Decision.Reason.handsOver() || w.revocations.Knows(r.Attempt) {
		return nil
	}
	history, _, err := w.cfg.Store.History(ctx, r.Identity)
	if err != nil {
		return refuse(StoreCode(err), err)
	}
	for i, h := range history {
		if h.Record.Attempt == r.Attempt && i > 0 {
			return w.handOver(ctx, history[i-1].Record, r, trust.Cause{By: "muster", Why: string(r.Decision.Reason)})
		}
	}
	return nil
}

func (r Reason) handsOver() bool { return r == ReasonGrant || r == ReasonOneTimeToken }

// checkLost refuses keys that lost the identity. A restored record may not show the loss.
func (a *attempt) checkLost() error {
	if a.reason == ReasonNew || a.reason.handsOver() {
		return nil
	}
	for _, key := range []string{a.keyHash(), a.vouching} {
		if by := a.revocations.Lost(a.identity, key); by != nil {
			return refuse(wire.CodeIdentityTaken, by.Err())
		}
	}
	return nil
}

func handOverCause(a *attempt) trust.Cause {
	if (a.reason == ReasonGrant || a.oneTime) && a.grant.By != "" {
		return trust.Cause{By: a.grant.By, Why: a.grant.Why}
	}
	return trust.Cause{By: "muster", Why: string(a.reason)}
}
