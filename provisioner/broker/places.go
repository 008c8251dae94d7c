package broker

import (
	"cmp"
	"net/netip"
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
// Of the token's connections, those from the address that has most go first. And who comes with that
// token himself gets a place from that address by the same rule: so whoever took them all from one
// address does not keep out a fleet that has one token for all.
//
// As with [sessions], nobody reports a connection that has gone. So what is known of it
// stays until all are looked at. It belongs to one server. Make one with [newPlaces].
type places struct {
	// Set by newPlaces, then read-only.
	full  func() bool // whether all are taken: the next one is refused
	alive func(number uint64) bool
	end   func(number uint64) // harmless for one that has gone by itself

	mu    sync.Mutex
	from  map[uint64]origin   // guarded by mu: with what each connection came, by its number
	late  map[uint64]struct{} // guarded by mu: of these, those that came when there was no place
	held  map[string]int      // guarded by mu: how many are known of each token; no entry is 0
	alike map[origin]int      // guarded by mu: how many are known of each token and address; no entry is 0
	added int                 // guarded by mu: since all were last looked at
	sweep int                 // guarded by mu: how many may be, before they are looked at although there are places

	// Of the token that had most when all were last looked at.
	ranked   bool     // guarded by mu: it is known
	most     string   // guarded by mu
	yielding []uint64 // guarded by mu: its connections, those of the address that has most last, of these the newest
}

// An origin is where a connection comes from.
type origin struct {
	token  string // its id
	source string // see [sourceOf]
}

func newPlaces(full func() bool, alive func(number uint64) bool, end func(number uint64)) *places {
	return &places{full: full, alive: alive, end: end,
		from: make(map[uint64]origin), late: make(map[uint64]struct{}), held: make(map[string]int), alike: make(map[origin]int), sweep: minSweep}
}

// take makes known with which token and from where a connection comes, before the server gives it a
// place, and makes room for it if it may have that of another one. Where it
// may not, the server refuses it. Taking again is harmless; with another token it replaces
// the first.
func (p *places) take(from origin, number uint64) {
	for _, other := range p.enter(from, number, p.full()) {
		p.end(other)
	}
}

// enter does the work of take, but for what ends: one that has a place and, before it, those that
// have come since and most likely have none. The server refuses these, but they are there until it
// has got to that.
func (p *places) enter(from origin, number uint64, full bool) (others []uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if before, known := p.from[number]; known {
		if before == from {
			return nil // it has its place
		}
		p.forget(before, number)
	}
	p.from[number] = from
	p.held[from.token]++
	p.alike[from]++
	p.added++
	// While there is no place, at most a sixteenth are not what they were when all were looked
	// at. Looking at one takes some 100 ns, which is a few µs for each that comes.
	switch {
	case full && (!p.ranked || p.added > len(p.from)/16):
		p.look()
		p.rank()
	case p.added >= p.sweep:
		p.look()
	}
	for full && len(p.yielding) > 0 {
		last := len(p.yielding) - 1
		other := p.yielding[last]
		has, known := p.from[other]
		known = known && has.token == p.most
		if known && !p.yields(has, from) {
			break
		}
		p.yielding = p.yielding[:last]
		if !known {
			continue
		}
		_, late := p.late[other]
		p.forget(has, other)
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

// yields reports whether a connection of the token that has most gives its place to one from elsewhere.
// The caller holds mu.
func (p *places) yields(most, to origin) bool {
	if most.token != to.token {
		return p.held[most.token] > 2*p.held[to.token]
	}
	return p.alike[most] > 2*p.alike[to]
}

// look forgets the connections that have gone. The caller holds mu.
func (p *places) look() {
	for number, from := range p.from {
		if !p.alive(number) {
			p.forget(from, number)
		}
	}
	p.added, p.sweep, p.ranked = 0, max(minSweep, len(p.from)), false
}

// rank finds the token that has most. The caller holds mu.
func (p *places) rank() {
	p.ranked, p.most, p.yielding = true, "", p.yielding[:0]
	for token, n := range p.held {
		if n > p.held[p.most] {
			p.most = token
		}
	}
	type holder struct {
		alike  int
		source string
		number uint64
	}
	var holders []holder
	for number, from := range p.from {
		if from.token == p.most {
			holders = append(holders, holder{p.alike[from], from.source, number})
		}
	}
	slices.SortFunc(holders, func(a, b holder) int {
		return cmp.Or(cmp.Compare(a.alike, b.alike), cmp.Compare(a.source, b.source), cmp.Compare(a.number, b.number)) // the server counts them up
	})
	for _, h := range holders {
		p.yielding = append(p.yielding, h.number)
	}
}

// forget drops what is known of a connection. The caller holds mu.
func (p *places) forget(from origin, number uint64) {
	delete(p.from, number)
	delete(p.late, number)
	if p.held[from.token]--; p.held[from.token] == 0 {
		delete(p.held, from.token)
	}
	if p.alike[from]--; p.alike[from] == 0 {
		delete(p.alike, from)
	}
}

// sourceOf returns what a client's connections are counted by: its address, or in IPv6, where a machine
// has as many as it likes, the network of that.
func sourceOf(host string) string {
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if ip = ip.Unmap().WithZone(""); ip.Is4() {
		return ip.String()
	}
	network, err := ip.Prefix(64)
	if err != nil {
		return host
	}
	return network.String()
}
