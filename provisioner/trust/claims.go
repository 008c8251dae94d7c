package trust

import (
	"context"
	"errors"
	"fmt"
	"time"

	"muster/internal/wire"
	"muster/jwt"
)

// ClaimSchema is the version of a [ClaimEntry]. An entry of another schema could count differently, so no node enrolls
// with a token whose log has one.
const ClaimSchema = 1

// Limits of one entry. The largest claim has 560 bytes, so a batch stays below 150 KB of the 1 MiB that a broker
// accepts.
const (
	MaxBatch       = 256
	MaxSourceBytes = 64
)

// AnyRevision appends an entry unconditionally. It is for entries that count nothing.
const AnyRevision = ^Revision(0)

// A ClaimLog keeps an append-only log of claims and releases for each limited token. Nothing in it is ever changed or
// deleted. All methods are safe for concurrent use.
type ClaimLog interface {
	// Claims calls each for every entry of the token's log after the revision, in order, and stops at the first error
	// of each. Entries have passed [ClaimEntry.Check]. Entries appended meanwhile may be missing.
	Claims(ctx context.Context, tid jwt.TokenID, after Revision, each func(*ClaimEntry, Revision) error) error

	// AppendClaims appends an entry if the newest revision of the token's log is still after (0: none; or
	// [AnyRevision]), else it returns [ErrConflict]. Nil means on disk. After other errors it may be written, now or
	// later: read before deciding.
	AppendClaims(ctx context.Context, tid jwt.TokenID, e *ClaimEntry, after Revision) (Revision, error)

	// AllClaims calls each for every entry of every log, in the order of writing, and stops at the first error of each.
	AllClaims(ctx context.Context, each func(jwt.TokenID, *ClaimEntry, Revision) error) error
}

// A ClaimEntry is one write to a token's log, for many requests of one process. Releases come before claims.
type ClaimEntry struct {
	Schema   int            `json:"schema"`
	Token    *TokenInfo     `json:"token,omitempty"` // in the first entry of a log only
	Releases []TokenRelease `json:"releases,omitempty"`
	Claims   []TokenClaim   `json:"claims,omitempty"`
}

// A TokenClaim says that an attempt is about to issue a certificate for this key and identity.
type TokenClaim struct {
	Key      string        `json:"key"` // [ca.KeyHash]
	Identity wire.Identity `json:"identity"`
	Attempt  string        `json:"attempt"` // the only one that may write the record
	At       time.Time     `json:"at"`
	Source   string        `json:"source,omitempty"` // address of the connection
}

// A TokenRelease takes back the claim of one attempt, or on an operator's order all claims of the key and identity.
type TokenRelease struct {
	Key      string        `json:"key"`
	Identity wire.Identity `json:"identity"`
	Attempt  string        `json:"attempt,omitempty"` // empty exactly if All
	All      bool          `json:"all,omitempty"`
	At       time.Time     `json:"at"`
	By       string        `json:"by,omitempty"` // operator; empty if the attempt itself
	Why      string        `json:"why,omitempty"`
}

// Check returns an error if an entry is invalid. It runs on every entry that is read.
func (e *ClaimEntry) Check() error {
	if e.Schema != ClaimSchema {
		return fmt.Errorf("claims: schema %d, want %d", e.Schema, ClaimSchema)
	}
	if len(e.Claims)+len(e.Releases) == 0 {
		return errors.New("claims: neither a claim nor a release")
	}
	for _, c := range e.Claims {
		if c.Key == "" || c.Identity == "" || c.Attempt == "" || c.At.IsZero() {
			return fmt.Errorf("claims: claim of key %q for %q by attempt %q at %v is incomplete", c.Key, c.Identity, c.Attempt, c.At)
		}
	}
	for _, r := range e.Releases {
		if r.Key == "" || r.Identity == "" || (r.Attempt == "") != r.All {
			return fmt.Errorf("claims: release of key %q for %q by attempt %q, all %v", r.Key, r.Identity, r.Attempt, r.All)
		}
	}
	return nil
}
