package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/span"
	"muster/internal/wire"
	"muster/provisioner/fleet"
	"muster/provisioner/trust"
)

const lastSeenInterval = time.Second

// FollowLastSeen calls each with the time, by the broker's clock, of every node's last message, and of each later
// message. It returns nil when ctx is done. After all stored nodes it calls current with the time since which messages
// are stored. Calls for one node may be out of order.
func (s *Store) FollowLastSeen(ctx context.Context, each func(wire.Identity, time.Time),
	current func(since time.Time),
) error {
	last := make(map[string]uint64)
	return s.poll(ctx, streamAlive, lastSeenInterval, func() error {
		var alive time.Time
		for _, stream := range []string{streamLifecycle, streamAlive} {
			answer, err := s.infos.ask(ctx, stream)
			if err != nil {
				return err
			}
			alive = answer.info.Created
			if answer.info.State.LastSeq <= last[stream] {
				continue
			}
			// Messages come in order, so after an error the scan can continue at the last sequence.
			cfg := lastPerSubject(wire.AllNodeEvents)
			if last[stream] > 0 {
				cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, last[stream]+1
			}
			err = s.scan(ctx, stream, 0, cfg, func(m message) error {
				if id, _, ok := nodeEvent(m.subject); ok {
					each(id, m.at)
				}
				last[stream] = m.sequence
				return nil
			})
			if err != nil {
				return err
			}
		}
		if current != nil {
			current(alive)
			current = nil
		}
		return nil
	})
}

// poll calls check at each tick until ctx is done; then it returns nil. It logs each error once and goes on.
func (c *client) poll(ctx context.Context, stream string, every time.Duration, check func() error) error {
	lastErr := ""
	return span.Every(ctx, every, func(ctx context.Context) {
		switch err := check(); {
		case ctx.Err() != nil:
		case err == nil:
			lastErr = ""
		case err.Error() != lastErr:
			lastErr = err.Error()
			c.log.WarnContext(ctx, "reading a stream failed, trying again", "stream", stream, "err", err)
		}
	})
}

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

// PutRun replaces the last run. It does not wait for the disk: a run is a report, and the next one replaces it.
func (s *Store) PutRun(r *fleet.Run) error {
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
func (s *Store) LastRun(ctx context.Context, id wire.Identity) (*fleet.Run, error) {
	r, _, err := getLast[fleet.Run](ctx, s.client, streamRuns, subjectRuns+id.SubjectToken())
	if errors.Is(err, trust.ErrRecord) {
		return nil, nil
	}
	return r, err
}
