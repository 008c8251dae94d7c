package store

import "slices"

// A span is the sequences from first to last.
type span struct{ first, last uint64 }

// spans are sequences of a stream, in their order. No span touches the next, so
// that what comes nearly in its order, as acknowledgements do, takes little room.
type spans []span

// at returns the place of the first span that ends at n or after it.
func (s spans) at(n uint64) int {
	// What is asked for is nearly always at the end.
	if k := len(s); k == 0 || s[k-1].last < n {
		return k
	}
	i, _ := slices.BinarySearchFunc(s, n, func(a span, n uint64) int {
		if a.last < n {
			return -1
		}
		return 1
	})
	return i
}

// has reports whether n is one of them.
func (s spans) has(n uint64) bool {
	i := s.at(n)
	return i < len(s) && s[i].first <= n
}

// add takes n in; one that is there already changes nothing.
func (s *spans) add(n uint64) {
	all := *s
	i := all.at(n)
	if i < len(all) && all[i].first <= n {
		return
	}
	before, after := i > 0 && all[i-1].last+1 == n, i < len(all) && all[i].first == n+1
	switch {
	case before && after:
		all[i-1].last = all[i].last
		all = slices.Delete(all, i, i+1)
	case before:
		all[i-1].last = n
	case after:
		all[i].first = n
	default:
		all = slices.Insert(all, i, span{n, n})
	}
	*s = all
}

// after returns the last sequence up to which they go on without a gap after n, n
// if they do not.
func (s spans) after(n uint64) uint64 {
	if i := s.at(n + 1); i < len(s) && s[i].first <= n+1 {
		return s[i].last
	}
	return n
}

// drop forgets those up to n.
func (s *spans) drop(n uint64) {
	all := *s
	i := all.at(n + 1)
	if all = slices.Delete(all, 0, i); len(all) > 0 {
		all[0].first = max(all[0].first, n+1)
	}
	*s = all
}
