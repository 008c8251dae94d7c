package provisioner

import (
	"context"

	"muster/provisioner/waiting"

	"muster/provisioner/orders"

	"muster/provisioner/trust"

	"muster/internal/wire"
)

// A Store keeps what provisioners must not forget. Any number of them may
// share one. All methods are safe for concurrent use and block until the
// answer is there or the context is done.
type Store interface {
	// Record returns the newest record of id with its revision, or nil and 0 if
	// there is none. Every record it returns has passed [Record.Check]; one that
	// does not is [trust.ErrRecord].
	Record(ctx context.Context, id wire.Identity) (*Record, trust.Revision, error)

	// Put writes r, provided that the newest revision of its identity is still
	// after. It returns nil once the write is on disk and [trust.ErrConflict] if it
	// was not made, or [trust.ErrStoreFull]. After any other error the
	// write may have happened or may yet happen: read before deciding.
	Put(ctx context.Context, r *Record, after trust.Revision) (trust.Revision, error)

	// Logs returns what operators have ordered.
	Logs() *orders.Logs

	trust.ClaimLog
	TokenNotes
	waiting.Store
}
