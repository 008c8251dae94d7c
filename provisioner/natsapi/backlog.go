package natsapi

import (
	"net/netip"
	"sync"
	"time"
)

// A waiter is a request that waits, with what is known of its sender.
type waiter struct {
	*call
	since time.Time // monotonic
}

// A backlog is what waits for a few goroutines, in one line or several: of those that are taken one after the other,
// no two are from the same line while somebody waits in another.
//
// It is shared by where requests come from, so that whoever sends more than can be served, and there
// is nothing to keep him from it, has his own wait and not everybody's: the first of each source is
// served before the second of another, and none may have more room than is then left. So one that
// takes all it gets leaves half to all others, and N of them leave one part of N+1. (The bound is
// Choudhury and Hahne's for shared buffers, dynamic thresholds with a factor of 1: it takes from
// nobody what he has, and costs one comparison.) What comes from one source is served as it came.
//
// It is safe for concurrent use. Make one with [newBacklog].
type backlog struct {
	place int // bytes of a request for which it takes a place; read-only

	mu     sync.Mutex
	some   sync.Cond // somebody waits, or nobody will any more; its lock is mu
	lines  []line    // guarded by mu
	next   int       // guarded by mu: line to take from first
	closed bool      // guarded by mu
}

// A line is one of a backlog. What is in it is guarded by that.
type line struct {
	free  int // places
	of    map[netip.Prefix]*sender
	turns []*sender // those that wait, in the order in which they are served
}

// A sender is a source that waits in a line.
type sender struct {
	source  netip.Prefix
	places  int
	waiting []waiter
}

// newBacklog returns one with so many lines, of as many places each. A request takes one of
// these for each so many bytes that it has begun.
func newBacklog(lines, places, bytes int) *backlog {
	b := &backlog{place: bytes, lines: make([]line, lines)}
	b.some.L = &b.mu
	for i := range b.lines {
		b.lines[i] = line{free: places, of: make(map[netip.Prefix]*sender)}
	}
	return b
}

// put has a request wait in a line, and reports whether there is room for it.
func (b *backlog) put(n int, w waiter) bool {
	source, places := w.source.Key(), b.places(w)
	b.mu.Lock()
	defer b.mu.Unlock()
	l := &b.lines[n]
	s := l.of[source]
	if s == nil {
		s = &sender{source: source}
	}
	if s.places+places > l.free {
		return false
	}
	if len(s.waiting) == 0 {
		l.of[source] = s
		l.turns = append(l.turns, s)
	}
	s.waiting = append(s.waiting, w)
	s.places += places
	l.free -= places
	b.some.Signal()
	return true
}

// places returns how many a request takes.
func (b *backlog) places(w waiter) int { return 1 + max(0, w.Size()-1)/b.place }

// close ends what each returns once it is empty. Nobody may put anything in any more.
func (b *backlog) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.some.Broadcast()
}

// len returns how many wait.
func (b *backlog) len() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.lines {
		for _, s := range b.lines[i].turns {
			n += len(s.waiting)
		}
	}
	return n
}

// each calls work for what waits and what comes, until it is closed and empty. Any number of
// goroutines may call it.
func (b *backlog) each(work func(waiter)) {
	for {
		w, ok := b.take()
		if !ok {
			return
		}
		work(w)
	}
}

// take waits for somebody whose turn it is. It reports false once nobody will come any more.
func (b *backlog) take() (waiter, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		for range b.lines {
			l := &b.lines[b.next]
			b.next = (b.next + 1) % len(b.lines)
			if len(l.turns) > 0 {
				return b.pop(l), true
			}
		}
		if b.closed {
			return waiter{}, false
		}
		b.some.Wait()
	}
}

// pop takes the first of the source whose turn it is, and has that wait behind the others for its
// next one. The caller holds mu.
func (b *backlog) pop(l *line) waiter {
	s := l.turns[0]
	l.turns[0] = nil
	l.turns = l.turns[1:]
	w := s.waiting[0]
	s.waiting[0] = waiter{}
	s.waiting = s.waiting[1:]
	places := b.places(w)
	s.places -= places
	l.free += places
	if len(s.waiting) > 0 {
		l.turns = append(l.turns, s)
	} else {
		delete(l.of, s.source)
	}
	return w
}
