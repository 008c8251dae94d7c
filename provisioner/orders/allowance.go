package orders

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"muster/internal/wire"
	"muster/policies"
	"muster/provisioner/trust"
)

// AllowanceSchema is the version of the JSON form.
const AllowanceSchema = 1

// An Allowance is an entry of the allow-list: names that may enroll for the first time.
type Allowance struct {
	Schema    int          `json:"schema"`
	ID        string       `json:"id"` // of this version of the entry
	Pattern   wire.Pattern `json:"pattern"`
	ExpiresAt time.Time    `json:"expires_at,omitzero"` // zero: never
	At        time.Time    `json:"at"`
	Removed   bool         `json:"removed,omitempty"`
	Source    string       `json:"source,omitempty"` // imported list, or "" if an operator added it

	// WithoutToken: it admits requests without a token too.
	WithoutToken bool `json:"without_token,omitempty"`

	trust.Cause
}

// AllowanceID is the key of a pattern's entry.
func AllowanceID(p wire.Pattern) string { return wire.Sum([]byte(p))[:32] }

// Check returns what is invalid.
func (a *Allowance) Check() error {
	if a.Schema != AllowanceSchema {
		return fmt.Errorf("allow-list entry %q: schema %d, want %d", a.Pattern, a.Schema, AllowanceSchema)
	}
	if _, err := wire.ParsePattern(string(a.Pattern)); err != nil {
		return fmt.Errorf("allow-list entry: %w", err)
	}
	if a.ID == "" {
		return fmt.Errorf("allow-list entry %q without an id", a.Pattern)
	}
	if a.Source != "" {
		if err := CheckAllowSource(a.Source); err != nil {
			return fmt.Errorf("allow-list entry %q: %w", a.Pattern, err)
		}
	}
	return a.Cause.Check()
}

const maxAllowSource = 64

// CheckAllowSource returns why a list cannot have this name, or nil.
func CheckAllowSource(name string) error {
	const chars = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"
	if name == "" || len(name) > maxAllowSource || strings.Trim(name, chars) != "" {
		return fmt.Errorf("source %.80q: want 1 to %d letters, digits, ., _ and -", name, maxAllowSource)
	}
	return nil
}

// LogKey is the entry's key in the log.
func (a *Allowance) LogKey() string { return AllowanceID(a.Pattern) }

// Over reports whether the entry was removed or has expired.
func (a *Allowance) Over(now time.Time) bool {
	return a.Removed || !a.ExpiresAt.IsZero() && !now.Before(a.ExpiresAt)
}

// Input returns the entry for the policy; a may be nil.
func (a *Allowance) Input() *policies.AllowEntry {
	if a == nil {
		return nil
	}
	return &policies.AllowEntry{Pattern: string(a.Pattern), Comment: a.Why, ExpiresAt: a.ExpiresAt}
}

func (a *Allowance) admits(id wire.Identity, now time.Time) bool {
	return !a.Over(now) && a.Pattern.Match(id)
}

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
