package operate

import (
	"context"
	"errors"
	"fmt"

	"muster/provisioner/orders"

	"muster/jwt"
	"muster/provisioner/events"
	"muster/provisioner/trust"
)

// Recovery orders the end of the store's recovery.
type Recovery struct{ *base }

// Frozen reports whether a recovery has frozen limited tokens.
func (r *Recovery) Frozen() bool { return r.logs.NewestRecovery() != nil }

// Unfreeze gives a frozen token left uses beyond those on record, up to its limit. The error is [trust.ErrTokenID], or
// [trust.ErrState] if no token is frozen.
func (t *Tokens) Unfreeze(ctx context.Context, tid jwt.TokenID, left int, c trust.Cause) (err error) {
	defer about(&err, "unfreeze token %.80q", string(tid))
	err = errors.Join(c.Check(), trust.CheckTokenID(tid))
	if left < 0 {
		err = errors.Join(err, fmt.Errorf("%d uses left, want 0 or more", left))
	}
	if err := wrong(err); err != nil {
		return err
	}
	r := t.logs.NewestRecovery()
	if r == nil {
		return fmt.Errorf("%w: the store was never in recovery, so no token is frozen", trust.ErrState)
	}
	report, err := t.Get(ctx, tid, 1)
	if errors.Is(err, ErrUnknownToken) { // none of its uses is on record
		report, err = &TokenReport{}, nil
	}
	if err != nil {
		return err
	}
	u := &orders.Unfreeze{
		Schema: orders.RecoverySchema,
		Epoch:  r.Epoch,
		Token:  tid,
		Uses:   report.Used + left,
		At:     t.now(),
		Cause:  c,
	}
	_, err = trust.Change(ctx, t.logs.Unfrozen, string(tid),
		func(trust.Entry[*orders.Unfreeze]) (*orders.Unfreeze, error) { return u, nil })
	if err != nil {
		return err
	}
	e := t.event(events.TokenUnfrozen, c)
	e.Token = tid
	t.report(ctx, "token unfrozen", e, "token_id", tid, "left", left)
	return nil
}

// End ends the store's recovery: certificates that are not on record are unknown from then on. Void entries stay void,
// and limited tokens stay frozen. The error is [trust.ErrState] if there was no recovery.
func (r *Recovery) End(ctx context.Context, c trust.Cause) (err error) {
	defer about(&err, "end recovery")
	if err := wrong(c.Check()); err != nil {
		return err
	}
	ended := false
	_, err = trust.Change(ctx, r.logs.Recovery, orders.RecoveryKey,
		func(e trust.Entry[*orders.Recovery]) (*orders.Recovery, error) {
			switch {
			case e.Revision == 0:
				return nil, fmt.Errorf("%w: the store was never in recovery", trust.ErrState)
			case e.Unread != nil:
				return nil, e.Unread
			case !e.Value.Ended.IsZero():
				return e.Value, nil
			}
			next := *e.Value
			next.Entry, next.Ended, next.EndedBy, ended = e.Revision, r.now(), &c, true
			return &next, nil
		})
	if err == nil && ended {
		r.report(ctx, "recovery ended", r.event(events.RecoveryEnded, c))
	}
	return err
}
