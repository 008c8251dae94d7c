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
func AllowanceID(p wire.Pattern) string {
	sum := sha256.Sum256([]byte(p))
	return hex.EncodeToString(sum[:16])
}

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
