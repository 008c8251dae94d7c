package store

import (
	"math/rand/v2"
	"testing"
)

// TestSpans holds spans to a plain set of numbers, over any order of additions.
func TestSpans(t *testing.T) {
	t.Parallel()
	const top = 60
	for round := range 300 {
		var s spans
		set, dropped := make(map[uint64]bool), uint64(0)
		for range 150 {
			n := 1 + rand.Uint64N(top)
			if rand.IntN(20) > 0 {
				s.add(n)
				set[n] = true
			} else {
				dropped = n / 2
				s.drop(dropped)
				for i := range dropped + 1 {
					delete(set, i)
				}
			}
			for i := range uint64(top + 3) {
				if s.has(i) != set[i] {
					t.Fatalf("round %d: %v: has %d = %v", round, s, i, s.has(i))
				}
				end := i
				for set[end+1] {
					end++
				}
				if got := s.after(i); got != end {
					t.Fatalf("round %d: %v: after %d = %d, want %d", round, s, i, got, end)
				}
			}
			for i := range s {
				if s[i].first > s[i].last || i > 0 && s[i-1].last+1 >= s[i].first {
					t.Fatalf("round %d: %v: span %d is not in order", round, s, i)
				}
			}
		}
	}
}
