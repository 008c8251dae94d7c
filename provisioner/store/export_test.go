package store

import (
	"time"
)

// Single makes every write go alone, as a benchmark's other side.
func (s *Store) Single() { s.batcher = nil }

// Patient makes writes wait for all that are in hand, however long it takes them.
func (s *Store) Patient() { s.batcher.maxWait = time.Hour }

// Unacknowledged is how many writes by themselves are under way.
func (s *Store) Unacknowledged() int { return s.js.PublishAsyncPending() }
