package provisioner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"muster/internal/wire"
	"muster/policies"
	"muster/provisioner/events"
)

// allowances is the allow-list of the store, as this process knows it.
type allowances struct{ log Log[*Allowance] }

// all returns the entry that lets every name in at now, or nil.
func (as allowances) all(now time.Time) *Allowance {
	for _, e := range as.log.All() {
		if a := e.Value; a != nil && AnyName(a.Pattern) && !a.over(now) {
			return a
		}
	}
	return nil
}

// watchAllowsAll keeps the alarm about an allow-list that lets every name in, be
// it the store's or this provisioner's own.
func (p *Provisioner) watchAllowsAll(ctx context.Context) {
	p.cfg.Alarms.Keep(ctx, events.AlarmAllowsAll, func() error {
		switch a := p.allowances.all(p.now()); {
		case a != nil && a.ExpiresAt.IsZero():
			return fmt.Errorf("%w: `muster allow remove '%s'` ends it, which %s added at %s", errAllowsAll, a.Pattern, a.By, a.At.Format(time.RFC3339))
		case a != nil:
			return fmt.Errorf("%w: `muster allow remove '%s'` ends it, or %s; %s added it at %s",
				errAllowsAll, a.Pattern, a.ExpiresAt.Format(time.RFC3339), a.By, a.At.Format(time.RFC3339))
		case p.cfg.AllowsAll():
			return fmt.Errorf("%w: by the allow_list file of this provisioner", errAllowsAll)
		}
		return nil
	})
}

// AnyName reports whether a pattern covers names without naming anything of
// them: a lone *, but also `**.*` or `*.*.*`.
func AnyName(p wire.Pattern) bool { return strings.Trim(string(p), "*?.-") == "" }

// errAllowsAll is the cause of [events.AlarmAllowsAll].
var errAllowsAll = errors.New("the allow-list admits every name, so whoever holds a token can enroll as anything")

// match returns the entry that covers an identity, or nil: the one for exactly this name first,
// the others by their patterns. One that cannot be read covers none.
func (as allowances) match(id wire.Identity, now time.Time) *Allowance {
	if e, _ := as.log.Get(AllowanceID(wire.Pattern(id))); e.Value != nil && e.Value.admits(id, now) {
		return e.Value
	}
	var best *Allowance
	for _, e := range as.log.All() {
		if a := e.Value; a != nil && a.admits(id, now) && (best == nil || a.Pattern < best.Pattern) {
			best = a
		}
	}
	return best
}

// stands reports whether the entry is still the one in force, and admits the identity.
func (as allowances) stands(a *Allowance, id wire.Identity, now time.Time) bool {
	e, _ := as.log.Get(a.LogKey())
	return e.Value != nil && e.Value.ID == a.ID && e.Value.admits(id, now)
}

// list returns all entries by their patterns, also those that have expired.
func (as allowances) list() []*Allowance {
	list := []*Allowance{}
	for _, e := range as.log.All() {
		if e.Value != nil && !e.Value.Removed {
			list = append(list, e.Value)
		}
	}
	slices.SortFunc(list, func(a, b *Allowance) int { return cmp.Compare(a.Pattern, b.Pattern) })
	return list
}

// allowed returns the allow-list's word about an identity, or nil: that of
// this provisioner's own file, or else of the store, with the entry there.
func (p *Provisioner) allowed(id wire.Identity) (*policies.AllowEntry, *Allowance) {
	if entry := p.cfg.Allow(id); entry != nil {
		return entry, nil
	}
	a := p.allowances.match(id, p.now())
	if a == nil {
		return nil, nil
	}
	return &policies.AllowEntry{Pattern: string(a.Pattern), Comment: a.Why, ExpiresAt: a.ExpiresAt}, a
}

// ErrEverything means that a pattern covers every name, and nobody has said that
// this is what is wanted.
var ErrEverything = errors.New("this pattern lets every name in: whoever has a token can enroll as anything")

// AllowNames lets names enroll that were never seen: those that the pattern
// covers, until expires if that is not zero. It replaces the entry of the same pattern: asking
// again is harmless. A lone * is for labs: it is refused with [ErrEverything] unless
// all is true, and is an alarm for as long as it stands. It is in force on
// every provisioner within a second.
func (p *Provisioner) AllowNames(ctx context.Context, pattern string, expires time.Duration, all bool, c Cause) (*Allowance, error) {
	parsed, err := wire.ParsePattern(pattern)
	err = errors.Join(err, c.Check())
	if expires < 0 {
		err = errors.Join(err, fmt.Errorf("expires in %v, want more than nothing", expires))
	}
	if err == nil && AnyName(parsed) && !all {
		err = errors.Join(err, ErrEverything)
	}
	if err := wrong(err); err != nil {
		return nil, fmt.Errorf("allow %.80q: %w", pattern, err)
	}
	a := &Allowance{Schema: AllowanceSchema, ID: wire.NewID(), Pattern: parsed, Cause: c}
	if expires > 0 {
		a.ExpiresAt = p.now().Add(expires)
	}
	told := events.Event{Type: events.Allowed, Time: p.moment(), Pattern: parsed, By: c.By, Why: c.Why}
	a, err = p.putAllowance(ctx, parsed, func(*Allowance) (*Allowance, error) { return a, nil })
	if err != nil {
		return nil, fmt.Errorf("allow %q: %w", pattern, err)
	}
	p.cfg.Emit(told)
	p.cfg.Log.InfoContext(ctx, "names allowed", append(until(a), "pattern", a.Pattern, "by", c.By, "why", c.Why)...)
	return a, nil
}

// until is when an entry ends, as attributes of a log; none if it does not.
func until(a *Allowance) []any {
	if a.ExpiresAt.IsZero() {
		return nil
	}
	return []any{"until", a.ExpiresAt}
}

// ErrNotAllowed means that the store's allow-list has no such entry.
var ErrNotAllowed = errors.New("no such entry in the allow-list of the store")

// DisallowNames removes the entry of a pattern. Nodes that it has let in stay.
// The error is [ErrNotAllowed] if there is none.
func (p *Provisioner) DisallowNames(ctx context.Context, pattern wire.Pattern, c Cause) error {
	told := events.Event{Type: events.Disallowed, Time: p.moment(), Pattern: pattern, By: c.By, Why: c.Why}
	err := wrong(c.Check())
	if err == nil {
		_, err = p.putAllowance(ctx, pattern, func(newest *Allowance) (*Allowance, error) {
			if newest == nil || newest.Removed {
				return nil, ErrNotAllowed
			}
			return &Allowance{Schema: AllowanceSchema, ID: wire.NewID(), Pattern: pattern, Removed: true, Cause: c}, nil
		})
	}
	if err != nil {
		return fmt.Errorf("disallow %.80q: %w", pattern, err)
	}
	p.cfg.Emit(told)
	p.cfg.Log.InfoContext(ctx, "names no longer allowed", "pattern", pattern, "by", c.By, "why", c.Why)
	return nil
}

// putAllowance writes what next returns for the newest entry of a pattern, nil if there is none,
// and journals it. It gets its time here, which is after that of the newest. One that cannot be
// read is there, and is replaced.
func (p *Provisioner) putAllowance(ctx context.Context, pattern wire.Pattern, next func(newest *Allowance) (*Allowance, error)) (*Allowance, error) {
	written, err := change(ctx, p.logs.Allowances, AllowanceID(pattern), func(newest Entry[*Allowance], _ bool) (*Allowance, error) {
		before := newest.Value
		if newest.Unread != nil {
			before = &Allowance{Pattern: pattern}
		}
		a, err := next(before)
		if err != nil {
			return nil, err
		}
		timed := *a
		timed.At = newest.Value.moment().next(p.now())
		return &timed, nil
	})
	if err != nil {
		return nil, err
	}
	p.watchAllowsAll(ctx)
	return written, p.journals.write()
}

// Allowances returns the allow-list of the store, by pattern. Entries that have
// expired are among it until they are removed or replaced.
func (p *Provisioner) Allowances(context.Context) ([]*Allowance, error) {
	if err := p.Fresh(); err != nil {
		return nil, err
	}
	return p.allowances.list(), nil
}
