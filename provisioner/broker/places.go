package broker

import (
	"slices"
	"sync"
)

// places sees to it that no token has all the places of machines without a certificate
// while others want one. Whoever comes when all are taken gets that of the newest
// connection of the token that has most, if those are more than twice as many as are
// then with the one that he came with. So a token whose holder takes every place there is, and
// keeps it, keeps no other one out; a token alone may have them all; and two fleets that come at
// once do not take turns at throwing each other out. The newest goes since that is what it would have
// been had it come a moment later, and those before it are being answered.
//
// As with [sessions], nobody reports a connection that has gone. So what is known of it
// stays until all are looked at. It belongs to one server. Make one with [newPlaces].
type places struct {
	// Set by newPlaces, then read-only.
	full  func() bool // whether all are taken: the next one is refused
	alive func(number uint64) bool
	end   func(number uint64) // harmless for one that has gone by itself

	mu    sync.Mutex
	token map[uint64]string   // guarded by mu: with which each connection came, by its number
	late  map[uint64]struct{} // guarded by mu: of these, those that came when there was no place
	held  map[string]int      // guarded by mu: how many are known of each token; no entry is 0
	added int                 // guarded by mu: since all were last looked at
	sweep int                 // guarded by mu: how many may be, before they are looked at although there are places

	// Of the token that had most when all were last looked at.
	ranked   bool     // guarded by mu: it is known
	most     string   // guarded by mu
	yielding []uint64 // guarded by mu: its connections, the newest last
}

func newPlaces(full func() bool, alive func(number uint64) bool, end func(number uint64)) *places {
	return &places{full: full, alive: alive, end: end,
		token: make(map[uint64]string), late: make(map[uint64]struct{}), held: make(map[string]int), sweep: minSweep}
}

// take makes known with which token a connection comes, before the server gives it a
// place, and makes room for it if it may have that of another one. Where it
// may not, the server refuses it. Taking again is harmless; with another token it replaces
// the first.
func (p *places) take(token string, number uint64) {
	for _, other := range p.enter(token, number, p.full()) {
		p.end(other)
	}
}

// enter does the work of take, but for what ends: one that has a place and, before it, those that
// have come since and most likely have none. The server refuses these, but they are there until it
// has got to that.
func (p *places) enter(token string, number uint64, full bool) (others []uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if before, known := p.token[number]; known {
		if before == token {
			return nil // it has its place
		}
		p.forget(before, number)
	}
	p.token[number] = token
	p.held[token]++
	p.added++
	// While there is no place, at most a sixteenth are not what they were when all were looked
	// at. Looking at one takes some 100 ns, which is a few µs for each that comes.
	switch {
	case full && (!p.ranked || p.added > len(p.token)/16):
		p.look()
		p.rank()
	case p.added >= p.sweep:
		p.look()
	}
	for full && p.held[p.most] > 2*p.held[token] && len(p.yielding) > 0 {
		last := len(p.yielding) - 1
		other := p.yielding[last]
		p.yielding = p.yielding[:last]
		if p.token[other] != p.most {
			continue
		}
		_, late := p.late[other]
		p.forget(p.most, other)
		if !p.alive(other) {
			continue
		}
		if others = append(others, other); !late {
			return others
		}
	}
	if full {
		p.late[number] = struct{}{}
	}
	return others
}

// look forgets the connections that have gone. The caller holds mu.
func (p *places) look() {
	for number, token := range p.token {
		if !p.alive(number) {
			p.forget(token, number)
		}
	}
	p.added, p.sweep, p.ranked = 0, max(minSweep, len(p.token)), false
}

// rank finds the token that has most. The caller holds mu.
func (p *places) rank() {
	p.ranked, p.most, p.yielding = true, "", p.yielding[:0]
	for token, n := range p.held {
		if n > p.held[p.most] {
			p.most = token
		}
	}
	for number, token := range p.token {
		if token == p.most {
			p.yielding = append(p.yielding, number)
		}
	}
	slices.Sort(p.yielding) // the server counts them up
}

// forget drops what is known of a connection. The caller holds mu.
func (p *places) forget(token string, number uint64) {
	delete(p.token, number)
	delete(p.late, number)
	if p.held[token]--; p.held[token] == 0 {
		delete(p.held, token)
	}
}
