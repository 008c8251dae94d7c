package operate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"muster/provisioner/orders"

	"muster/internal/wire"
	"muster/provisioner/events"
	"muster/provisioner/trust"
)

// ErrEverything means that a pattern covers every name and the order does not confirm that.
var ErrEverything = errors.New("this pattern admits every name: any holder of a token can enroll under any name")

// ErrNotAllowed means that the allow-list has no such entry.
var ErrNotAllowed = errors.New("no such entry in the allow-list")

// AllowList is the allow-list.
type AllowList struct{ *base }

// List returns the entries by pattern, expired ones too.
func (l *AllowList) List(context.Context) ([]*orders.Allowance, error) {
	if err := l.provisioner.Fresh(); err != nil {
		return nil, err
	}
	return l.logs.Allowances.List(), nil
}

// An AllowOrder describes an entry of the allow-list.
type AllowOrder struct {
	Pattern      string        `json:"pattern"`
	Expires      time.Duration `json:"expires_ns,omitempty"` // from now; 0: never
	Everything   bool          `json:"everything,omitempty"` // allows a pattern that covers every name
	WithoutToken bool          `json:"without_token,omitempty"`
}

// Add lets new names enroll that match the pattern, in place of the pattern's earlier entry. The pattern * is
// [ErrEverything] unless the order allows it, and an alarm while it is in force. A name for which keys wait is a
// [trust.ErrState].
func (l *AllowList) Add(ctx context.Context, o AllowOrder, c trust.Cause) (a *orders.Allowance, err error) {
	defer about(&err, "allow %.80q", o.Pattern)
	parsed, err := wire.ParseNamePattern(o.Pattern)
	err = errors.Join(err, c.Check())
	if o.Expires < 0 {
		err = errors.Join(err, fmt.Errorf("expires in %v, want more than 0", o.Expires))
	}
	if err == nil && orders.AnyName(parsed) && !o.Everything {
		err = errors.Join(err, ErrEverything)
	}
	if err == nil {
		err = l.judge(parsed.Example())
	}
	if err := wrong(err); err != nil {
		return nil, err
	}
	if err := l.checkUnasked(ctx, parsed); err != nil {
		return nil, err
	}
	a = l.entry(parsed, c)
	a.WithoutToken = o.WithoutToken
	if o.Expires > 0 {
		a.ExpiresAt = a.At.Add(o.Expires)
	}
	return a, l.change(ctx, a)
}

// checkUnasked refuses a name for which keys wait: one of them may be a thief's, and the first that asks would get it.
func (l *AllowList) checkUnasked(ctx context.Context, p wire.Pattern) error {
	id, err := wire.ParseIdentity(string(p))
	if err != nil { // it covers several names
		return nil
	}
	keys := &Keys{base: l.base}
	waiting, err := keys.Waiting(ctx, id)
	if err != nil || len(waiting) == 0 {
		return err
	}
	return fmt.Errorf("%w: the entry would give the name to the first key that asks, and %s: compare with the key in "+
		"the log of the right machine, then `muster node approve %s --fingerprint KEY`", trust.ErrState,
		describeKeys(waiting), id)
}

// Remove removes a pattern; nodes that it admitted stay. The error is [ErrNotAllowed] if there is none.
func (l *AllowList) Remove(ctx context.Context, pattern wire.Pattern, c trust.Cause) (err error) {
	defer about(&err, "disallow %.80q", pattern)
	if err := wrong(c.Check()); err != nil {
		return err
	}
	a := l.entry(wire.Pattern(wire.FoldName(string(pattern))), c)
	a.Removed = true
	return l.change(ctx, a)
}

// change replaces the newest entry of the pattern. A removal needs one; an unreadable one counts.
func (l *AllowList) change(ctx context.Context, a *orders.Allowance) error {
	err := l.put(ctx, a, func(key string) error {
		_, err := trust.Change(ctx, l.logs.Allowances.Log, key,
			func(newest trust.Entry[*orders.Allowance]) (*orders.Allowance, error) {
				if a.Removed && newest.Unread == nil && (newest.Value == nil || newest.Value.Removed) {
					return nil, ErrNotAllowed
				}
				return a, nil
			})
		return err
	})
	if err == nil {
		l.provisioner.AllowListChanged(ctx)
	}
	return err
}

func (l *AllowList) entry(pattern wire.Pattern, c trust.Cause) *orders.Allowance {
	return &orders.Allowance{
		Schema:  orders.AllowanceSchema,
		ID:      wire.NewID(),
		Pattern: pattern,
		At:      l.now(),
		Cause:   c,
	}
}

func (l *AllowList) put(ctx context.Context, a *orders.Allowance, write func(key string) error) error {
	e := l.event(events.Allowed, a.Cause)
	e.Pattern = a.Pattern
	if a.Removed {
		e.Type = events.Disallowed
	}
	if err := write(a.LogKey()); err != nil {
		return err
	}
	l.report(ctx, "allow-list changed", e, "pattern", a.Pattern, "subject", e.Type, "until", a.ExpiresAt)
	return nil
}
