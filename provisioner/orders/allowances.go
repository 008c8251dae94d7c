package orders

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"muster/internal/wire"
	"muster/provisioner/trust"
)

// Allowances is this process's view of the allow-list.
type Allowances struct {
	trust.Log[*Allowance]
	patterns *patternIndex
}

// patternIndex has the entries with wildcards. They are few. Whole names, up to 100,000, are found by key. It is safe
// for concurrent use.
type patternIndex struct {
	mu      sync.RWMutex
	entries map[string]*Allowance // guarded by mu, by key
}

// NewAllowances returns the allow-list of a log.
func NewAllowances(log trust.Log[*Allowance]) Allowances {
	as := Allowances{Log: log, patterns: &patternIndex{entries: make(map[string]*Allowance)}}
	log.Watch(as.patterns.apply)
	return as
}

func (x *patternIndex) apply(key string, e trust.Entry[*Allowance]) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if a := e.Value; a == nil || a.Removed || !strings.ContainsAny(string(a.Pattern), "*?") {
		delete(x.entries, key)
		return
	}
	x.entries[key] = e.Value
}

// first returns the first entry, by pattern, that is in force and accepted, or nil.
func (x *patternIndex) first(now time.Time, accept func(*Allowance) bool) *Allowance {
	x.mu.RLock()
	defer x.mu.RUnlock()
	var best *Allowance
	for _, a := range x.entries {
		if !a.Over(now) && (best == nil || a.Pattern < best.Pattern) && accept(a) {
			best = a
		}
	}
	return best
}

// AnyName reports whether a pattern covers every name, like *, `**.*` or `*.*.*`.
func AnyName(p wire.Pattern) bool { return strings.Trim(string(p), "*?.-") == "" }

// Match returns the entry that covers an identity, or nil. Its exact name comes first, then patterns in order.
// Unreadable entries cover nothing. tokenless: the request has no token.
func (as Allowances) Match(id wire.Identity, now time.Time, tokenless bool) *Allowance {
	covers := func(a *Allowance) bool { return a.Pattern.Match(id) && (a.WithoutToken || !tokenless) }
	if e, _ := as.Get(AllowanceID(wire.Pattern(id))); e.Value != nil && !e.Value.Over(now) && covers(e.Value) {
		return e.Value
	}
	return as.patterns.first(now, covers)
}

// Stands reports whether the entry is still in force and admits the identity.
func (as Allowances) Stands(a *Allowance, id wire.Identity, now time.Time) bool {
	e, _ := as.Get(a.LogKey())
	return e.Value != nil && e.Value.ID == a.ID && e.Value.admits(id, now)
}

// List returns all entries sorted by pattern, also expired ones.
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

// AnyName returns an entry in force that admits every name, or nil.
func (as Allowances) AnyName(now time.Time) *Allowance {
	return as.patterns.first(now, func(a *Allowance) bool { return AnyName(a.Pattern) })
}
