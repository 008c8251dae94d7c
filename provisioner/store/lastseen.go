package store

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/wire"
)

// seenEvery is how often it is looked at which nodes were heard of.
const lastSeenInterval = time.Second

// FollowLastSeen calls each with when nodes of the fleet were heard of over their own connections, and then whenever one is,
// until ctx is done; it then returns nil. That a node speaks is the broker's word, and so is the time. Once it has named
// every node that is kept, it calls current with since when that is kept: of a node that it has not named it is not known
// whether it was heard of before. The calls about one node are not in the order of its times.
func (s *EventLog) FollowLastSeen(ctx context.Context, each func(wire.Identity, time.Time), current func(since time.Time)) error {
	last := make(map[string]uint64)
	return s.poll(ctx, streamAlive, lastSeenInterval, func() error {
		var alive time.Time // when that stream was made
		for _, stream := range []string{streamLifecycle, streamAlive} {
			now, err := s.infos.ask(ctx, stream)
			if err != nil {
				return err
			}
			alive = now.info.Created
			if now.info.State.LastSeq <= last[stream] {
				continue
			}
			// Messages come in their order, so the last one of each subject has either been had or is still to come.
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

// poll calls check, and again after each time, until ctx is done, and returns nil then. What fails is tried again and
// logged once; [ErrDamaged] is returned.
func (c *client) poll(ctx context.Context, stream string, every time.Duration, check func() error) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	said := ""
	for {
		err := check()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrDamaged):
			return err
		case err == nil:
			said = ""
		case err.Error() != said:
			said = err.Error()
			c.log.WarnContext(ctx, "store is followed again", "stream", stream, "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
