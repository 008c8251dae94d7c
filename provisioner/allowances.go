package provisioner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"muster/provisioner/trust"

	"muster/internal/wire"
	"muster/policies"
	"muster/provisioner/events"
)

// Allowances are the allow-list of the store, as this process knows it.
type Allowances struct{ trust.Log[*Allowance] }

// anyName returns the entry that lets every name in at now, or nil.
func (as Allowances) anyName(now time.Time) *Allowance {
	for _, e := range as.All() {
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
		switch a := p.logs.Allowances.anyName(p.now()); {
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
func (as Allowances) match(id wire.Identity, now time.Time) *Allowance {
	if e, _ := as.Get(AllowanceID(wire.Pattern(id))); e.Value != nil && e.Value.admits(id, now) {
		return e.Value
	}
	var best *Allowance
	for _, e := range as.All() {
		if a := e.Value; a != nil && a.admits(id, now) && (best == nil || a.Pattern < best.Pattern) {
			best = a
		}
	}
	return best
}

// stands reports whether the entry is still the one in force, and admits the identity.
func (as Allowances) stands(a *Allowance, id wire.Identity, now time.Time) bool {
	e, _ := as.Get(a.LogKey())
	return e.Value != nil && e.Value.ID == a.ID && e.Value.admits(id, now)
}

// List returns all entries by their patterns, also those that have expired.
func (as Allowances) List() []*Allowance {
	list := []*Allowance{}
	for _, e := range as.All() {
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
	a := p.logs.Allowances.match(id, p.now())
	if a == nil {
		return nil, nil
	}
	return &policies.AllowEntry{Pattern: string(a.Pattern), Comment: a.Why, ExpiresAt: a.ExpiresAt}, a
}

// AllowListChanged has the alarm about an allow-list that admits every name say what is in force now.
func (p *Provisioner) AllowListChanged(ctx context.Context) { p.watchAllowsAll(ctx) }
