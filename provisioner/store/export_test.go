package store

import (
	"time"
)

// Single makes every write go alone, for benchmarks.
func (s *Store) Single() { s.recordWriter = nil }

// Patient makes writes wait for all requests in hand, without a time limit.
func (s *Store) Patient() { s.recordWriter.maxWait = time.Hour }

// Unacknowledged returns the number of single writes in flight.
func (s *Store) Unacknowledged() int { return s.js.PublishAsyncPending() }
