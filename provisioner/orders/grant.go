package orders

import (
	"fmt"
	"time"

	"muster/internal/wire"
)

// A Grant lets one other key take an identity over, once. It is spent when a
// record of its identity names it: spending and using it are one write, so it
// can be neither used twice nor lost. A newer grant replaces it.
type Grant struct {
	ID        string        `json:"id"`
	Identity  wire.Identity `json:"identity"`
	KeyHash   string        `json:"key_hash,omitempty"` // only this key; any if empty
	At        time.Time     `json:"at"`                 // when it was given
	Owned     time.Time     `json:"owned,omitzero"`     // since when the machine had the identity that it was given against
	ExpiresAt time.Time     `json:"expires_at"`
	By        string        `json:"by,omitempty"` // operator, for the history
	Why       string        `json:"why,omitempty"`
}

// LogKey is the key of the log's entries about the identity.
func (g *Grant) LogKey() string { return g.Identity.SubjectToken() }

// Check reports what about a grant cannot be.
func (g *Grant) Check() error {
	if _, err := wire.ParseIdentity(string(g.Identity)); err != nil {
		return fmt.Errorf("grant: %w", err)
	}
	if g.ID == "" {
		return fmt.Errorf("grant for %q without an id", g.Identity)
	}
	return nil
}

// Open reports whether the time of the grant is not over at now.
func (g *Grant) Open(now time.Time) bool { return now.Before(g.ExpiresAt) }
