package store

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// Written returns how many messages the streams have ever taken of what is
// acknowledged when it is on disk: records, claims, revocations and entries.
// Events are not counted.
func (s *Store) Written(ctx context.Context) (uint64, error) {
	var all uint64
	for _, stream := range []jetstream.Stream{s.nodes, s.claims, s.revocations, s.entries} {
		info, err := stream.Info(ctx)
		if err != nil {
			return 0, fmt.Errorf("writes: %w", err)
		}
		all += info.State.LastSeq
	}
	return all, nil
}
