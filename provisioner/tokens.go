package provisioner

import (
	"context"

	"muster/provisioner/trust"

	"muster/internal/wire"
	"muster/jwt"
)

// A TokenNotes keeps what is known of tokens without a limit, and reads records
// for what is asked about all tokens.
type TokenNotes interface {
	// NoteToken writes down a token, if it has not been yet, without waiting
	// for it. A note that is lost is written by the next process.
	NoteToken(t *trust.TokenInfo)

	// NotedTokens calls each for every token that was noted, and stops at the
	// first error of each.
	NotedTokens(ctx context.Context, each func(*trust.TokenInfo) error) error

	// NotedToken returns the note of a token, or nil if there is none.
	NotedToken(ctx context.Context, tid jwt.TokenID) (*trust.TokenInfo, error)

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

// note writes down a token with which a node has enrolled. A limited one is
// described by its log of claims.
func (p *Provisioner) note(v *jwt.Verified) {
	if v.Limits.Uses > 0 {
		return
	}
	if _, noted := p.noted.LoadOrStore(v.ID, true); !noted {
		p.cfg.Store.NoteToken(trust.NewTokenInfo(v, p.now()))
	}
}
