package trust

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/events"
)

// ClaimSchema is the version of a [ClaimEntry]. A token whose log has another version enrolls no node.
const ClaimSchema = 1

// The largest claim has 560 bytes, so MaxBatch claims stay far below a broker's message limit of 1 MiB.
const (
	MaxBatch       = 256
	MaxSourceBytes = 64
)

// AnyRevision as the expected revision makes a write unconditional.
const AnyRevision = ^Revision(0)

// A ClaimLog has an append-only log for each limited token. It is safe for concurrent use.
type ClaimLog interface {
	// Claims calls each for the entries after revision after, in order, up to the first error of each.
	Claims(ctx context.Context, tid jwt.TokenID, after Revision, each func(*ClaimEntry, Revision) error) error

	// AppendClaims appends if the newest revision is still after (0: none), else it returns [ErrConflict]. After other
	// errors the entry may be stored now or later: read the log before deciding.
	AppendClaims(ctx context.Context, tid jwt.TokenID, e *ClaimEntry, after Revision) (Revision, error)

	// AllClaims is Claims for all tokens.
	AllClaims(ctx context.Context, each func(jwt.TokenID, *ClaimEntry, Revision) error) error
}

// A ClaimEntry is one write to a token's log. Releases come before claims.
type ClaimEntry struct {
	Schema   int            `json:"schema"`
	Token    *TokenInfo     `json:"token,omitempty"` // in the first entry only
	Releases []TokenRelease `json:"releases,omitempty"`
	Claims   []TokenClaim   `json:"claims,omitempty"`
}

// A TokenClaim takes a use of a token for a certificate.
type TokenClaim struct {
	Key      string        `json:"key"` // [ca.KeyHash]
	Identity wire.Identity `json:"identity"`
	Attempt  string        `json:"attempt"` // only this attempt may write the record
	At       time.Time     `json:"at"`
	Source   string        `json:"source,omitempty"`
}

// A TokenRelease gives back the claim of one attempt, or of all.
type TokenRelease struct {
	Key      string        `json:"key"`
	Identity wire.Identity `json:"identity"`
	Attempt  string        `json:"attempt,omitempty"` // empty exactly if All
	All      bool          `json:"all,omitempty"`
	At       time.Time     `json:"at"`
	By       string        `json:"by,omitempty"` // operator; empty if the attempt gave it back
	Why      string        `json:"why,omitempty"`
}

// Check validates an entry.
func (e *ClaimEntry) Check() error {
	if e.Schema != ClaimSchema {
		return fmt.Errorf("claims: schema %d, want %d", e.Schema, ClaimSchema)
	}
	if len(e.Claims)+len(e.Releases) == 0 {
		return errors.New("claims: neither a claim nor a release")
	}
	for _, c := range e.Claims {
		if c.Key == "" || c.Identity == "" || c.Attempt == "" || c.At.IsZero() {
			return fmt.Errorf("claims: claim of key %q for %q by attempt %q at %v is incomplete", c.Key, c.Identity,
				c.Attempt, c.At)
		}
	}
	for _, r := range e.Releases {
		if r.Key == "" || r.Identity == "" || (r.Attempt == "") != r.All {
			return fmt.Errorf("claims: release of key %q for %q by attempt %q, all %v: want an attempt or all",
				r.Key, r.Identity, r.Attempt, r.All)
		}
	}
	return nil
}

// TokenInfo describes a used token, without its secrets.
type TokenInfo struct {
	ID         jwt.TokenID    `json:"tid"`
	Signer     jwt.SignerID   `json:"signer"`
	SignerName string         `json:"signer_name"`
	JTI        string         `json:"jti,omitempty"`  // cut to [MaxJTIBytes]
	Uses       int            `json:"uses,omitempty"` // 0: unlimited
	Identities []wire.Pattern `json:"identities,omitempty"`
	Site       jwt.Site       `json:"site,omitempty"`
	IssuedAt   time.Time      `json:"issued_at,omitzero"`
	ExpiresAt  time.Time      `json:"expires_at,omitzero"` // zero: never
	FirstSeen  time.Time      `json:"first_seen,omitzero"` // zero if revoked before any use
}

// MaxJTIBytes bounds the stored part of a jti, which the signer chooses.
const MaxJTIBytes = 128

// NewTokenInfo describes a token.
func NewTokenInfo(v *jwt.Verified, seen time.Time) *TokenInfo {
	return &TokenInfo{
		ID:         v.ID,
		Signer:     v.Signer,
		SignerName: v.SignerName,
		JTI:        events.Cut(v.JTI, MaxJTIBytes),
		Uses:       v.Limits.Uses,
		Identities: v.Limits.Identities,
		Site:       v.Limits.Site,
		IssuedAt:   v.IssuedAt.UTC(),
		ExpiresAt:  v.Expiry().UTC(),
		FirstSeen:  seen,
	}
}

// ErrState means that an order does not fit the state of a node or token.
var ErrState = errors.New("not in this state")

// CheckKeyHash returns an error unless text is a SHA-256 in hex.
func CheckKeyHash(text string) error {
	if !IsSHA256(text) {
		return fmt.Errorf("key hash %.80q, want 64 lower-case hex digits", text)
	}
	return nil
}

// IsSHA256 reports whether s is 64 lower-case hex digits.
func IsSHA256(s string) bool { return isHex(s, 64) }

func isHex(s string, digits int) bool {
	return len(s) == digits && strings.Trim(s, "0123456789abcdef") == ""
}

// ErrRecord means that a record is damaged or of another version.
var ErrRecord = errors.New("record cannot be read")
