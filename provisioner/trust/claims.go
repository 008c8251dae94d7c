package trust

import (
	"context"
	"errors"
	"fmt"
	"time"

	"muster/internal/wire"
	"muster/jwt"
)

// ClaimSchema is the version of the JSON form of a [ClaimEntry]. An entry of
// another schema could count differently, so a log with one in it is not
// understood: the token is good for nobody until the provisioner is updated.
const ClaimSchema = 1

// Bounds of one entry. The largest claim has 560 bytes: a key hash of 64, an
// identity of 253, an attempt of 22, an address of 64 and their names. So a
// batch stays below 150 KB, of the 1 MiB that a broker takes by default.
const (
	MaxBatch       = 256
	MaxSourceBytes = 64
)

// AnyRevision appends an entry whatever comes before it. It is for entries that
// count nothing.
const AnyRevision = ^Revision(0)

// A ClaimLog keeps, for each limited token, an append-only log of who has
// claimed a use of it and of what was given back. Nothing in it is ever
// changed, deleted or forgotten by age: what is not in the log has not been
// spent.
//
// All methods are safe for concurrent use and block until the answer is there
// or the context is done.
type ClaimLog interface {
	// Claims calls each for every entry of the token's log after the revision,
	// in order, and stops at the first error of each. Every entry has passed
	// [ClaimEntry.Check]. It may miss what was appended while it reads, and
	// nothing that comes before what it has read.
	Claims(ctx context.Context, tid jwt.TokenID, after Revision, each func(*ClaimEntry, Revision) error) error

	// AppendClaims appends an entry, provided that the newest revision of the
	// token's log is still after; 0 means that there is none, and [AnyRevision]
	// that it may be any. It returns nil
	// once the entry is on disk and [ErrConflict] if it was not written. After
	// any other error it may have been written or may yet be: read before
	// deciding.
	AppendClaims(ctx context.Context, tid jwt.TokenID, e *ClaimEntry, after Revision) (Revision, error)

	// AllClaims calls each for every entry of every log, in the
	// order in which they were written, and stops at the first error of each.
	AllClaims(ctx context.Context, each func(jwt.TokenID, *ClaimEntry, Revision) error) error
}

// A ClaimEntry is one write to a token's log: what many requests of one process
// claim and give back together. Its releases come before its claims.
type ClaimEntry struct {
	Schema   int            `json:"schema"`
	Token    *TokenInfo     `json:"token,omitempty"` // in the first entry of a log only
	Releases []TokenRelease `json:"releases,omitempty"`
	Claims   []TokenClaim   `json:"claims,omitempty"`
}

// A TokenClaim says that an attempt is about to issue a certificate for this
// key and identity.
type TokenClaim struct {
	Key      string        `json:"key"` // [ca.KeyHash]
	Identity wire.Identity `json:"identity"`
	Attempt  string        `json:"attempt"` // the one that may write the record
	At       time.Time     `json:"at"`
	Source   string        `json:"source,omitempty"` // address of the connection
}

// A TokenRelease takes back the claim of one attempt, or by an operator's word
// all that are held for the key and identity where it stands in the log.
type TokenRelease struct {
	Key      string        `json:"key"`
	Identity wire.Identity `json:"identity"`
	Attempt  string        `json:"attempt,omitempty"` // empty exactly if All
	All      bool          `json:"all,omitempty"`
	At       time.Time     `json:"at"`
	By       string        `json:"by,omitempty"`  // operator; empty if the attempt itself
	Why      string        `json:"why,omitempty"` // the operator's words
}

// Check reports what about an entry cannot be. It is run on every entry that is
// read.
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
