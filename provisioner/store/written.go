package store

import (
	"context"
	"fmt"
)

// Written returns how many messages the streams have ever taken of what is
// acknowledged when it is on disk: records, claims, revocations and entries.
// Events are not counted.
func (s *Store) Written(ctx context.Context) (uint64, error) {
	var all uint64
	for _, name := range kept {
		info, err := s.info(ctx, s.handle(name))
		if err != nil {
			return 0, fmt.Errorf("writes: %w", err)
		}
		all += info.State.LastSeq
	}
	return all, nil
}
