package provisioner

import (
	"context"
	"sync"
	"time"

	"muster/provisioner/trust"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/events"
)

// TokenInfo is what operators are told of a token that has been used here, be
// it one that was signed elsewhere and never registered. It holds no secret of
// the token.
type TokenInfo struct {
	ID         jwt.TokenID    `json:"tid"`
	Signer     jwt.SignerID   `json:"signer"`
	SignerName string         `json:"signer_name"`
	JTI        string         `json:"jti,omitempty"`  // the signer's own id, cut to 128 bytes
	Uses       int            `json:"uses,omitempty"` // 0: unlimited
	Identities []wire.Pattern `json:"identities,omitempty"`
	Site       jwt.Site       `json:"site,omitempty"`
	IssuedAt   time.Time      `json:"issued_at,omitzero"`
	ExpiresAt  time.Time      `json:"expires_at,omitzero"` // zero: never
	FirstSeen  time.Time      `json:"first_seen,omitzero"` // of one that was issued here: when it was; zero if it was revoked before
	IssuedBy   string         `json:"issued_by,omitempty"` // operator, if it was
}

// maxJTIBytes bounds the one text of a token that its signer may choose freely.
const maxJTIBytes = 128

// tokenInfo describes a token.
func tokenInfo(v *jwt.Verified, seen time.Time) *TokenInfo {
	return &TokenInfo{
		ID: v.ID, Signer: v.Signer, SignerName: v.SignerName, JTI: events.Cut(v.JTI, maxJTIBytes), Uses: v.Limits.Uses, Identities: v.Limits.Identities,
		Site: v.Limits.Site, IssuedAt: v.IssuedAt.UTC(), ExpiresAt: v.Expiry().UTC(), FirstSeen: seen,
	}
}

// A TokenNotes keeps what is known of tokens without a limit, and reads records
// for what is asked about all tokens.
type TokenNotes interface {
	// NoteToken writes down a token, if it has not been yet, without waiting
	// for it. A note that is lost is written by the next process.
	NoteToken(t *TokenInfo)

	// NotedTokens calls each for every token that was noted, and stops at the
	// first error of each.
	NotedTokens(ctx context.Context, each func(*TokenInfo) error) error

	// NotedToken returns the note of a token, or nil if there is none.
	NotedToken(ctx context.Context, tid jwt.TokenID) (*TokenInfo, error)

	// Records calls each for the newest record of every identity, and stops at
	// the first error of each. Records that are written meanwhile may come in
	// their earlier form, or twice.
	Records(ctx context.Context, each func(*Record, trust.Revision) error) error

	// History returns the revisions of the record of id that are kept, the
	// oldest first, and whether these are all that there have ever been.
	History(ctx context.Context, id wire.Identity) (history []Revised, complete bool, err error)
}

// Revised is a record at its revision.
type Revised struct {
	Record   *Record
	Revision trust.Revision
}

// maxNoted bounds the memory of a process of what it has noted; past it the
// memory is emptied, and notes are written again to no effect.
const maxNoted = 100_000

// noted remembers which tokens this process has noted. The zero value is ready.
type noted struct {
	mu   sync.Mutex
	seen map[jwt.TokenID]struct{} // guarded by mu
}

// first reports whether the token comes for the first time.
func (n *noted) first(tid jwt.TokenID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := n.seen[tid]; ok {
		return false
	}
	if n.seen == nil || len(n.seen) >= maxNoted {
		n.seen = make(map[jwt.TokenID]struct{})
	}
	n.seen[tid] = struct{}{}
	return true
}

// note writes down a token with which a node has enrolled. A limited one is
// described by its log of claims.
func (p *Provisioner) note(v *jwt.Verified) {
	if v.Limits.Uses == 0 && p.noted.first(v.ID) {
		p.cfg.Store.NoteToken(tokenInfo(v, p.now()))
	}
}
