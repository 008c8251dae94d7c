package provisioner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"muster/provisioner/trust"

	"muster/internal/wire"
)

// ErrRecord means that what the store holds cannot be a record of ours, or
// not of this version: the store answers, and the one identity needs a person.
var ErrRecord = errors.New("record cannot be read")

// A Store keeps what provisioners must not forget. Any number of them may
// share one. All methods are safe for concurrent use and block until the
// answer is there or the context is done.
type Store interface {
	// Record returns the newest record of id with its revision, or nil and 0 if
	// there is none. Every record it returns has passed [Record.Check]; one that
	// does not is [ErrRecord].
	Record(ctx context.Context, id wire.Identity) (*Record, trust.Revision, error)

	// Put writes r, provided that the newest revision of its identity is still
	// after. It returns nil once the write is on disk and [trust.ErrConflict] if it
	// was not made, or [trust.ErrStoreFull]. After any other error the
	// write may have happened or may yet happen: read before deciding.
	Put(ctx context.Context, r *Record, after trust.Revision) (trust.Revision, error)

	// Logs returns what operators have ordered.
	Logs() *Logs

	trust.ClaimLog
	TokenNotes
	WaiterStore
}

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

// admits reports whether the grant lets the key have the identity of r. One that
// was given while the identity was another machine's is not for this one.
func (g *Grant) admits(r *Record, keyHash string, now time.Time) bool {
	if g == nil || g.ID == "" || g.ID == r.Grant || !g.Open(now) || g.KeyHash != "" && g.KeyHash != keyHash {
		return false
	}
	if g.Owned.IsZero() { // of before grants said so, or against a record that does not say
		return !g.At.Before(r.OwnedSince)
	}
	return g.Owned.Equal(r.OwnedSince) // no clock has to agree with another one
}
