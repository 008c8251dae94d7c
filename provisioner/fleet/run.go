package fleet

import (
	"fmt"
	"time"

	"muster/internal/wire"
)

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
