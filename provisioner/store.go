package provisioner

import (
	"context"

	"muster/provisioner/waiting"

	"muster/provisioner/orders"

	"muster/provisioner/trust"

	"muster/internal/wire"
)

// A Store keeps the durable state that provisioners share. Its methods are safe for concurrent use.
type Store interface {
	// Record returns the newest record of id with its revision, or nil and 0. If the record fails [Record.Check],
	// the error wraps [trust.ErrRecord].
	Record(ctx context.Context, id wire.Identity) (*Record, trust.Revision, error)

	// Put writes r if the newest revision is still the given one, and returns once r is on disk. After
	// [trust.ErrConflict] and [trust.ErrStoreFull] nothing was written. After other errors the write may still
	// happen: read before deciding.
	Put(ctx context.Context, r *Record, after trust.Revision) (trust.Revision, error)

	Logs() *orders.Logs

	trust.ClaimLog
	TokenNotes
	waiting.Store
}
