package limit

import "sync"

// Shares divides a fixed amount among keys. A key may use as much as is free, so N greedy keys leave one part of N+1
// (dynamic thresholds, Choudhury and Hahne). It is safe for concurrent use.
type Shares[K comparable] struct {
	mu   sync.Mutex
	free int       // guarded by mu
	used map[K]int // guarded by mu; no entry is 0
}

// NewShares returns a Shares that divides all.
func NewShares[K comparable](all int) *Shares[K] {
	return &Shares[K]{free: all, used: make(map[K]int)}
}

// Acquire takes n for key until [Shares.Release]. If that is too much, it takes nothing and returns false.
func (s *Shares[K]) Acquire(key K, n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used[key]+n > s.free {
		return false
	}
	s.used[key] += n
	s.free -= n
	return true
}

// Release undoes Acquire.
func (s *Shares[K]) Release(key K, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free += n
	if s.used[key] -= n; s.used[key] <= 0 {
		delete(s.used, key)
	}
}
