package provisioner

import (
	"context"

	"muster/provisioner/trust"

	"muster/internal/wire"
	"muster/jwt"
)

// TokenNotes keeps notes of unlimited tokens.
type TokenNotes interface {
	// NoteToken does not wait. If a note is lost, the next process writes it.
	NoteToken(t *trust.TokenInfo)

	// NotedTokens calls each for every note, until an error.
	NotedTokens(ctx context.Context, each func(*trust.TokenInfo) error) error

	// NotedToken returns the note of a token, or nil.
	NotedToken(ctx context.Context, tid jwt.TokenID) (*trust.TokenInfo, error)

	// Records calls each for the newest record of every identity, until an error. Concurrent writes may be missed, or
	// come twice.
	Records(ctx context.Context, each func(*Record, trust.Revision) error) error

	// History returns the kept revisions, oldest first, and whether no earlier ones are missing.
	History(ctx context.Context, id wire.Identity) (history []Revised, complete bool, err error)
}

// Revised is a record with its revision.
type Revised struct {
	Record   *Record
	Revision trust.Revision
}

func (p *Provisioner) note(v *jwt.Verified) {
	if v.Limits.Uses > 0 {
		return
	}
	if _, noted := p.noted.LoadOrStore(v.ID, true); !noted {
		p.cfg.Store.NoteToken(trust.NewTokenInfo(v, p.now()))
	}
}
