package broker

import (
	"maps"
	"slices"
	"sync"

	"github.com/nats-io/nats-server/v2/server"

	"muster/internal/wire"
)

// sessions knows the connections of the fleet by node: the NATS server lists
// connections only all at once, which takes 10 µs for each. It belongs to one
// server, since numbers of connections begin anew with the next. Make one with
// [newSessions].
//
// The server does not report a connection that has gone. So what is known of it
// stays until its node comes again, or is asked for, or until as many are known
// as twice those that were alive when all were last looked at.
type sessions struct {
	// Set by newSessions, then read-only.
	alive func(number uint64) bool
	end   func(number uint64) // harmless for one that has gone by itself

	mu    sync.Mutex
	nodes map[wire.Identity][]session // guarded by mu; no entry is empty
	known int                         // guarded by mu: sessions in nodes
	sweep int                         // guarded by mu: how many may be known before all are looked at
}

// A session is one connection of a node.
type session struct {
	number      uint64 // the server's, "cid"
	certificate Certificate
}

// minSweep is how many sessions are known before they are first looked at
// whether they are still there: that takes some 100 µs.
const minSweep = 1024

func newSessions(alive func(number uint64) bool, end func(number uint64)) *sessions {
	return &sessions{alive: alive, end: end, nodes: make(map[wire.Identity][]session), sweep: minSweep}
}

// add makes a connection known. Adding it again is harmless.
func (s *sessions) add(id wire.Identity, added session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(id)
	if list := s.nodes[id]; !slices.Contains(list, added) {
		s.nodes[id] = append(list, added)
		s.known++
	}
	if s.known < s.sweep {
		return
	}
	for other := range s.nodes {
		s.forget(other)
	}
	s.sweep = max(minSweep, 2*s.known)
}

// of returns the connections that a node has.
func (s *sessions) of(id wire.Identity) []session {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(id)
	return slices.Clone(s.nodes[id])
}

// ids returns the nodes that may have connections.
func (s *sessions) ids() []wire.Identity {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.nodes))
}

// forget drops what is known of a node's connections that are gone. Called with
// mu held.
func (s *sessions) forget(id wire.Identity) {
	list := s.nodes[id]
	left := slices.DeleteFunc(list, func(c session) bool { return !s.alive(c.number) })
	s.known -= len(list) - len(left)
	if len(left) == 0 {
		delete(s.nodes, id)
		return
	}
	s.nodes[id] = left
}

// numberOf returns the server's number of a connection.
func numberOf(c server.ClientAuthentication) (uint64, bool) {
	n, ok := c.(interface{ GetID() uint64 }) // beyond what a [server.ClientAuthentication] must be
	if !ok {
		return 0, false
	}
	return n.GetID(), true
}
