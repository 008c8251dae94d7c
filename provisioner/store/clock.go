package store

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const subjectProbe = "muster.entry.probe"

// Time returns the time of the store's server.
func (s *Store) Time(ctx context.Context) (time.Time, error) {
	a, err := s.infos.recent(ctx, streamRevocations, time.Second)
	if err != nil {
		return time.Time{}, fmt.Errorf("ask the store for the time: %w", err)
	}
	return a.info.TimeStamp.Add(time.Since(a.received)), nil
}

// Probe returns nil once a test message is on disk: a store that answers reads may have lost its disk. Give ctx a
// deadline. [trust.ErrStoreFull] means that the store works.
func (s *Store) Probe(ctx context.Context) error {
	if _, err := s.js.Publish(ctx, subjectProbe, []byte("{}"), jetstream.WithRetryAttempts(0)); err != nil {
		return fmt.Errorf("probe store: %w", wrapFull(err))
	}
	return nil
}
