package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"muster/provisioner/orders"

	"muster/provisioner/trust"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/events"
)

// A NodeLog is the part of the store that an [Inspector] reads.
type NodeLog interface {
	// Record returns the newest record of id, or nil if there is none.
	Record(ctx context.Context, id wire.Identity) (*provisioner.Record, trust.Revision, error)

	// History returns the revisions of the record of id that are kept, the oldest
	// first, and whether these are all that there have ever been.
	History(ctx context.Context, id wire.Identity) ([]provisioner.Revised, bool, error)

	// NodeEvents returns the events about id that are kept, the oldest first, and
	// whether these are all that are kept.
	NodeEvents(ctx context.Context, id wire.Identity) ([]events.Event, bool, error)

	// Logs returns what operators have ordered.
	Logs() *orders.Logs
}

// An Inspector answers questions about one node, from the store. It is safe for concurrent use.
type Inspector struct {
	log   NodeLog
	index *Index
}

// NewInspector returns an inspector of the nodes in log; index knows when they were last heard of.
func NewInspector(log NodeLog, index *Index) *Inspector { return &Inspector{log: log, index: index} }

// A Report is all that is on record of a node.
type Report struct {
	Record   *provisioner.Record `json:"record"` // without the key that proves commands to the node
	Revision trust.Revision      `json:"revision"`
	Grant    *orders.Grant       `json:"grant,omitempty"` // the newest, used or not
	Seen     time.Time           `json:"seen,omitzero"`   // see [Node]

	// GrantOver is that the grant is not used, its time is not over, and it lets no key in: see
	// [orders.Grant.Stands].
	GrantOver bool `json:"grant_over,omitempty"`
}

// Granted is the grant if it waits for its key, nil if there is none or if it was used.
func (r *Report) Granted() *orders.Grant {
	if r.Grant == nil || r.Grant.ID == r.Record.Grant {
		return nil
	}
	return r.Grant
}

// Report returns what is on record of a node at now. The error is [provisioner.ErrNoRecord] if nothing is.
func (x *Inspector) Report(ctx context.Context, id wire.Identity, now time.Time) (*Report, error) {
	record, revision, err := x.log.Record(ctx, id)
	if err != nil {
		return nil, err
	}
	if record == nil {
		return nil, fmt.Errorf("%q: %w: `muster node explain` says whether it has tried", id, provisioner.ErrNoRecord)
	}
	grant, _, err := x.log.Logs().Grant(id)
	if err != nil {
		return nil, err
	}
	shown := *record
	shown.CommandKey = nil      // who may look is not who may command
	node, _ := x.index.Find(id) // zero if the index is not there yet
	return &Report{
		Record:    &shown,
		Revision:  revision,
		Grant:     grant,
		Seen:      node.Seen,
		GrantOver: waits(grant, record, now) && !record.GrantApplies(grant, now),
	}, nil
}

// waits reports whether a grant, which may be nil, is neither used nor past its time.
func waits(g *orders.Grant, r *provisioner.Record, now time.Time) bool {
	return g != nil && now.Before(g.ExpiresAt) && (r == nil || r.Grant != g.ID)
}

// ErrHeard means that a node was heard of since then, or that it is not known whether it was.
var ErrHeard = errors.New("not known to be away")

// Unheard returns [ErrHeard] if a node was heard of since then, or if that is not known, and
// [ErrReading] while it is being read when nodes were heard of.
func (x *Inspector) Unheard(ctx context.Context, id wire.Identity, since time.Time) error {
	last, begun, err := x.index.lastHeard(ctx, id)
	switch {
	case err != nil:
		return err
	case !last.Before(since):
		return fmt.Errorf("%w: it was heard of at %s", ErrHeard, stamp(last))
	case !since.After(begun):
		return notKept(begun)
	}
	return nil
}

// notKept says that the store does not know which nodes were heard of before a time. It has begun anew if it was lost,
// or restored from a backup.
func notKept(since time.Time) error {
	return fmt.Errorf("%w: the store keeps since %s when nodes were heard of", ErrHeard, stamp(since))
}

// lastHeard returns when a node was last heard of, the zero time for never, and since when that is kept.
func (x *Index) lastHeard(ctx context.Context, id wire.Identity) (last, begun time.Time, err error) {
	if err := wait(ctx, x.current, x.heard); err != nil {
		return last, begun, err
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	if n := x.find(id); n != nil {
		last = instant(x.heardOf(n))
	}
	return last, x.since, nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
