package provisioner

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"muster/provisioner/trust"

	"muster/internal/wire"
)

// AllowanceSchema is the version of an allowance's JSON form.
const AllowanceSchema = 1

// An Allowance is an entry of the allow-list in the store: names that may enroll
// without having been seen before, on every provisioner.
type Allowance struct {
	Schema    int          `json:"schema"`
	ID        string       `json:"id"` // of this version: one that replaces it has another
	Pattern   wire.Pattern `json:"pattern"`
	ExpiresAt time.Time    `json:"expires_at,omitzero"` // zero: never
	At        time.Time    `json:"at"`
	Removed   bool         `json:"removed,omitempty"`
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
	return a.Cause.Check()
}

// LogKey is the key of the log's entries about the pattern.
func (a *Allowance) LogKey() string { return AllowanceID(a.Pattern) }

// over reports whether it was removed, or has expired by now.
func (a *Allowance) over(now time.Time) bool {
	return a.Removed || !a.ExpiresAt.IsZero() && !now.Before(a.ExpiresAt)
}

// admits reports whether it covers an identity at now.
func (a *Allowance) admits(id wire.Identity, now time.Time) bool {
	return !a.over(now) && a.Pattern.Match(id)
}
