package orders

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"muster/internal/wire"
	"muster/policies"
	"muster/provisioner/trust"
)

// AllowanceSchema is the version of an allowance's JSON form.
const AllowanceSchema = 1

// An Allowance is an entry of the allow-list: names that may enroll without having been
// seen before, on every provisioner.
type Allowance struct {
	Schema    int          `json:"schema"`
	ID        string       `json:"id"` // of this version: one that replaces it has another
	Pattern   wire.Pattern `json:"pattern"`
	ExpiresAt time.Time    `json:"expires_at,omitzero"` // zero: never
	At        time.Time    `json:"at"`
	Removed   bool         `json:"removed,omitempty"`
	Source    string       `json:"source,omitempty"` // the list it was imported from; "": an operator added it
	trust.Cause
}

// AllowanceID names the place of a pattern's allowance: there is one for each.
func AllowanceID(p wire.Pattern) string {
	sum := sha256.Sum256([]byte(p))
	return hex.EncodeToString(sum[:16])
}

// Check reports what about an allowance cannot be.
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

// maxAllowSource bounds the name of a list that is imported.
const maxAllowSource = 64

// CheckAllowSource reports why a list that is imported cannot have this name.
func CheckAllowSource(name string) error {
	const chars = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"
	if name == "" || len(name) > maxAllowSource || strings.Trim(name, chars) != "" {
		return fmt.Errorf("source %.80q: want 1 to %d letters, digits, ., _ and -", name, maxAllowSource)
	}
	return nil
}

// LogKey is the key of the log's entries about the pattern.
func (a *Allowance) LogKey() string { return AllowanceID(a.Pattern) }

// Over reports whether it was removed, or has expired by now.
func (a *Allowance) Over(now time.Time) bool {
	return a.Removed || !a.ExpiresAt.IsZero() && !now.Before(a.ExpiresAt)
}

// Input is what policies see of the entry, nil of none.
func (a *Allowance) Input() *policies.AllowEntry {
	if a == nil {
		return nil
	}
	return &policies.AllowEntry{Pattern: string(a.Pattern), Comment: a.Why, ExpiresAt: a.ExpiresAt}
}

// admits reports whether it covers an identity at now.
func (a *Allowance) admits(id wire.Identity, now time.Time) bool {
	return !a.Over(now) && a.Pattern.Match(id)
}
