package operate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/events"
	"muster/provisioner/trust"
)

// ErrEverything means that a pattern covers every name, and the order does not say that this is meant.
var ErrEverything = errors.New("this pattern lets every name in: any holder of a token can enroll as anything")

// ErrNotAllowed means that the store's allow-list has no such entry.
var ErrNotAllowed = errors.New("no such entry in the allow-list of the store")

// AllowList is the allow-list in the store, which all provisioners share.
type AllowList struct{ *base }

// List returns the allow-list of the store, by pattern. Entries that have expired are among it until they are removed
// or replaced.
func (l *AllowList) List(context.Context) ([]*provisioner.Allowance, error) {
	if err := l.provisioner.Fresh(); err != nil {
		return nil, err
	}
	return l.logs.Allowances.List(), nil
}

// Add lets names enroll that were never seen: those that the pattern covers, until expires if that is not zero. It
// replaces the entry of the same pattern: asking again is harmless. A lone * is for labs: it is refused with
// [ErrEverything] unless all is true, and is an alarm for as long as it stands. It is in force on every provisioner
// within a second.
func (l *AllowList) Add(
	ctx context.Context, pattern string, expires time.Duration, all bool, c trust.Cause,
) (*provisioner.Allowance, error) {
	parsed, err := wire.ParsePattern(pattern)
	err = errors.Join(err, c.Check())
	if expires < 0 {
		err = errors.Join(err, fmt.Errorf("expires in %v, want more than nothing", expires))
	}
	if err == nil && provisioner.AnyName(parsed) && !all {
		err = errors.Join(err, ErrEverything)
	}
	if err := wrong(err); err != nil {
		return nil, fmt.Errorf("allow %.80q: %w", pattern, err)
	}
	a := &provisioner.Allowance{
		Schema:  provisioner.AllowanceSchema,
		ID:      wire.NewID(),
		Pattern: parsed,
		At:      l.now(),
		Cause:   c,
	}
	if expires > 0 {
		a.ExpiresAt = a.At.Add(expires)
	}
	e := events.Event{Type: events.Allowed, Time: l.moment(), Pattern: parsed, By: c.By, Why: c.Why}
	if err := l.put(ctx, a, nil); err != nil {
		return nil, fmt.Errorf("allow %q: %w", pattern, err)
	}
	l.emit(e)
	l.log.InfoContext(ctx, "names allowed", "pattern", a.Pattern, "until", a.ExpiresAt, "by", c.By, "why", c.Why)
	return a, nil
}

// Remove removes the entry of a pattern. Nodes that it has let in stay. The error is [ErrNotAllowed] if there is none.
func (l *AllowList) Remove(ctx context.Context, pattern wire.Pattern, c trust.Cause) error {
	if err := wrong(c.Check()); err != nil {
		return fmt.Errorf("disallow %.80q: %w", pattern, err)
	}
	a := &provisioner.Allowance{
		Schema:  provisioner.AllowanceSchema,
		ID:      wire.NewID(),
		Pattern: pattern,
		At:      l.now(),
		Removed: true,
		Cause:   c,
	}
	e := events.Event{Type: events.Disallowed, Time: l.moment(), Pattern: pattern, By: c.By, Why: c.Why}
	err := l.put(ctx, a, func(newest trust.Entry[*provisioner.Allowance]) error {
		if newest.Unread == nil && (newest.Value == nil || newest.Value.Removed) {
			return ErrNotAllowed
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("disallow %.80q: %w", pattern, err)
	}
	l.emit(e)
	l.log.InfoContext(ctx, "names no longer allowed", "pattern", pattern, "by", c.By, "why", c.Why)
	return nil
}

// put writes an entry in place of the newest of its pattern, if check, which may be nil, has nothing against that. An
// entry that cannot be read is replaced.
func (l *AllowList) put(
	ctx context.Context, a *provisioner.Allowance, check func(newest trust.Entry[*provisioner.Allowance]) error,
) error {
	_, err := trust.Change(ctx, l.logs.Allowances.Log, a.LogKey(),
		func(newest trust.Entry[*provisioner.Allowance]) (*provisioner.Allowance, error) {
			if check == nil {
				return a, nil
			}
			return a, check(newest)
		})
	if err != nil {
		return err
	}
	l.provisioner.AllowListChanged(ctx)
	return nil
}
