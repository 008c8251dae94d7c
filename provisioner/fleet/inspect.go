package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/events"
	"muster/provisioner/orders"
	"muster/provisioner/services"
	"muster/provisioner/trust"
	"muster/provisioner/waiting"
)

// A NodeLog is the part of the store that an [Inspector] reads.
type NodeLog interface {
	// Record returns the newest record of id, or nil.
	Record(ctx context.Context, id wire.Identity) (*provisioner.Record, trust.Revision, error)

	// History returns the kept revisions of a record, oldest first, and whether they are all that were written.
	History(ctx context.Context, id wire.Identity) ([]provisioner.Revised, bool, error)

	// NodeEvents returns the kept events about id, oldest first, and whether it has read all of them.
	NodeEvents(ctx context.Context, id wire.Identity) ([]events.Event, bool, error)

	// Waiters calls each for every waiting key of id, until an error.
	Waiters(ctx context.Context, id wire.Identity, each func(*waiting.Key, trust.Revision) error) error

	// LastRun returns the newest run of an unmodified agent, or nil.
	LastRun(ctx context.Context, id wire.Identity) (*Run, error)

	// Logs returns the operators' entries.
	Logs() *orders.Logs
}

// An Inspector answers questions about one node from the store. It is safe for concurrent use.
type Inspector struct {
	log      NodeLog
	index    *Index
	services *services.Index
}

// NewInspector returns an inspector of the nodes in log. index gives the times at which they were last seen,
// certificates what is known of their service certificates.
func NewInspector(log NodeLog, index *Index, certificates *services.Index) *Inspector {
	return &Inspector{log: log, index: index, services: certificates}
}

// A Report is a node's record.
type Report struct {
	Record   *provisioner.Record `json:"record"` // without its command key
	Revision trust.Revision      `json:"revision"`
	Grant    *orders.Grant       `json:"grant,omitempty"` // newest, used or not
	Seen     time.Time           `json:"seen,omitzero"`   // see [Node]

	Connection *Liveness `json:"connection,omitempty"` // see [Node]

	// Run is the last run of an unmodified agent that reports runs, or nil.
	Run *Run `json:"run,omitempty"`

	// GrantOver: the grant is void, although unused and unexpired, see [orders.Grant.Stands].
	GrantOver bool `json:"grant_over,omitempty"`
}

// Granted returns the grant unless it was used, or nil.
func (r *Report) Granted() *orders.Grant {
	if r.Grant == nil || r.Grant.ID == r.Record.Grant {
		return nil
	}
	return r.Grant
}

// Report returns a node's record. The error is [provisioner.ErrNoRecord] if there is none.
func (x *Inspector) Report(ctx context.Context, id wire.Identity, now time.Time) (*Report, error) {
	record, revision, err := x.log.Record(ctx, id)
	if err != nil {
		return nil, err
	}
	if record == nil {
		return nil, fmt.Errorf("%q: %w: `muster node explain` says whether the node has tried to enroll", id,
			provisioner.ErrNoRecord)
	}
	grant, _, err := x.log.Logs().Grant(id)
	if err != nil {
		return nil, err
	}
	run, err := x.log.LastRun(ctx, id)
	if err != nil {
		return nil, err
	}
	if run != nil && run.At.Before(record.OwnedSince) {
		run = nil // of the former owner
	}
	shown := *record
	shown.CommandKey = nil      // the caller may have no right to send commands
	node, _ := x.index.Find(id) // zero while the index is read
	return &Report{
		Record:     &shown,
		Revision:   revision,
		Grant:      grant,
		Seen:       node.Seen,
		Connection: node.Connection,
		Run:        run,
		GrantOver:  waits(grant, record, now) && !record.GrantApplies(grant, now),
	}, nil
}

// waits reports whether a grant, which may be nil, is unused and unexpired.
func waits(g *orders.Grant, r *provisioner.Record, now time.Time) bool {
	return g != nil && now.Before(g.ExpiresAt) && (r == nil || r.Grant != g.ID)
}

// ErrHeard means that a node was seen since a time, or may have been: its last time may be unknown.
var ErrHeard = errors.New("the node may be active")

// Unheard returns nil if a node was not seen since a time, [ErrHeard] if it was or may have been, [ErrReading] or
// [ErrIncomplete].
func (x *Inspector) Unheard(ctx context.Context, id wire.Identity, since time.Time) error {
	if err := x.index.wait(ctx, x.index.current, x.index.heard); err != nil {
		return err
	}
	x.index.mu.RLock()
	defer x.index.mu.RUnlock()
	if n := x.index.find(id); n != nil && !instant(x.index.heardOf(n)).Before(since) {
		return fmt.Errorf("%w: it was last seen at %s", ErrHeard, stamp(instant(x.index.heardOf(n))))
	}
	if !since.After(x.index.since) {
		return notKept(x.index.since)
	}
	return nil
}

// notKept means that times before since are not known. The stream of these times begins anew after a loss or a restore.
func notKept(since time.Time) error {
	return fmt.Errorf("%w: the times at which nodes were seen are kept only since %s", ErrHeard, stamp(since))
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// RunSchema is the version of a [Run] in JSON.
const RunSchema = 1

// RunFailed is the status of a failed run. Other runs have changed or unchanged.
const RunFailed = "failed"

// A Run is the last run of an unmodified agent, as the node reported it. All texts are the node's, bounded.
type Run struct {
	Schema   int           `json:"schema"`
	Identity wire.Identity `json:"identity"`
	At       time.Time     `json:"at"` // when the report came
	Status   string        `json:"status"`
	Noop     bool          `json:"noop,omitempty"` // nothing was to be changed

	// Version is that of the catalog: the configuration's digest. It is empty if the node had no catalog.
	Version     string `json:"version,omitempty"`
	Environment string `json:"environment,omitempty"`
	Agent       string `json:"agent,omitempty"` // its version

	Resources RunCounts `json:"resources"`
	Errors    []string  `json:"errors,omitempty"`       // the first different ones, those of facts last
	LeftOut   int       `json:"left_out,omitempty"`     // number of further errors
	Since     time.Time `json:"failing_since,omitzero"` // of the first of these failed runs in a row
}

// RunCounts counts the resources of a run.
type RunCounts struct {
	Total     int `json:"total"`
	Changed   int `json:"changed"`
	Failed    int `json:"failed"`
	Skipped   int `json:"skipped"`
	OutOfSync int `json:"out_of_sync"`
}

// Outcome returns the status in words.
func (r *Run) Outcome() string {
	if r.Noop {
		return r.Status + " (noop)"
	}
	return r.Status
}

// Text returns the counts in words.
func (c RunCounts) Text() string {
	return fmt.Sprintf("%d resources: %d out of sync, %d changed, %d failed, %d skipped", c.Total, c.OutOfSync,
		c.Changed, c.Failed, c.Skipped)
}

// Check returns why the run is invalid, or nil.
func (r *Run) Check() error {
	if r.Schema != RunSchema || r.Status == "" {
		return fmt.Errorf("run of %q: schema %d, want %d, with a status", r.Identity, r.Schema, RunSchema)
	}
	return nil
}
