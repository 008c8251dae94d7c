package httpapi

import (
	"cmp"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"

	"muster/internal/limit"
)

// Limits for few operators: a console uses several connections, a script one.
const (
	maxConns           = 512
	maxKeptPerOperator = 64
)

// places are the connections of the HTTPS listener. If all are taken, a new one ends the oldest without a login of the
// address that has most.
type places struct {
	mu       sync.Mutex
	held     map[net.Conn]*place // guarded by mu
	accepted uint64              // guarded by mu: number of connections
}

// place is guarded by the mutex of its places.
type place struct {
	source   netip.Prefix
	number   uint64 // in order of acceptance
	operator string // of the newest login; empty: the place is not kept
}

// follow is for [http.Server.ConnState].
func (p *places) follow(c net.Conn, state http.ConnState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch state {
	case http.StateNew:
		p.accepted++
		p.held[c] = &place{source: limit.Source(c.RemoteAddr().String()), number: p.accepted}
		if len(p.held) > maxConns {
			p.end(c)
		}
	case http.StateClosed:
		delete(p.held, c)
	}
}

// end ends a connection without a login, perhaps the newest. It requires mu.
func (p *places) end(newest net.Conn) {
	unknown := make(map[netip.Prefix]int)
	for _, h := range p.held {
		if h.operator == "" {
			unknown[h.source]++
		}
	}
	ended, chosen := newest, p.held[newest]
	for c, h := range p.held {
		first := cmp.Or(unknown[chosen.source]-unknown[h.source], cmp.Compare(h.number, chosen.number))
		if h.operator == "" && first < 0 {
			ended, chosen = c, h
		}
	}
	delete(p.held, ended)
	if secure, ok := ended.(*tls.Conn); ok {
		ended = secure.NetConn() // without an alert, which could block
	}
	_ = ended.Close() // nothing is owed to it
}

// keep notes the operator of a login.
func (p *places) keep(c net.Conn, operator string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	own := 0
	for _, h := range p.held {
		if h.operator == operator {
			own++
		}
	}
	if h := p.held[c]; h != nil && own < maxKeptPerOperator {
		h.operator = operator
	}
}
