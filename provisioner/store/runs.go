package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"muster/internal/wire"
	"muster/provisioner/fleet"
	"muster/provisioner/trust"
)

const (
	streamRuns  = "MUSTER_RUNS"
	subjectRuns = "muster.run." // + identity
)

// A run has 300 bytes, and at most 4 KiB with its errors: room for the failed runs of 60,000 nodes. Above the limit the
// oldest runs are dropped.
const (
	maxRunsBytes = 256 << 20
	maxRunBytes  = 8 << 10
)

// Runs keep the last run of each unmodified agent. Its methods are safe for concurrent use.
type Runs struct{ *client }

// PutRun replaces the last run. It does not wait for the disk: a run is a report, and the next one replaces it.
func (s *Runs) PutRun(r *fleet.Run) error {
	b, err := json.Marshal(r)
	switch {
	case err != nil:
	case len(b) > maxRunBytes:
		err = fmt.Errorf("%d bytes, limit %d", len(b), maxRunBytes)
	case s.room.Load() <= 0:
		err = errors.New("the remaining space is reserved for revocations")
	default:
		err = s.nc.Publish(subjectRuns+r.Identity.SubjectToken(), b)
	}
	if err != nil {
		return fmt.Errorf("write run of %q: %w", r.Identity, err)
	}
	return nil
}

// LastRun returns the newest run of id, or nil. An unreadable one of another version counts as none.
func (s *Runs) LastRun(ctx context.Context, id wire.Identity) (*fleet.Run, error) {
	r, _, err := getLast[fleet.Run](ctx, s.client, streamRuns, subjectRuns+id.SubjectToken())
	if errors.Is(err, trust.ErrRecord) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read run of %q: %w", id, err)
	}
	return r, nil
}
