package httpapi

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"sync"

	"muster/internal/limit"
	"muster/provisioner/login"
)

// Limits for few operators: a console uses several connections, a script one. A connection keeps its place while its
// last login succeeded, up to the limits of kept ones.
const (
	maxConns           = 512
	maxKept            = 448
	maxKeptPerOperator = 64
)

// places are the connections of a listener. If all places are taken, a new connection ends an unauthenticated one: the
// oldest of the address that has most. So clients without a credential cannot keep operators out.
type places struct {
	net.Listener

	mu       sync.Mutex
	held     map[*placedConn]struct{} // guarded by mu
	accepted uint64                   // guarded by mu: number of connections
}

func newPlaces(l net.Listener) *places {
	return &places{Listener: l, held: make(map[*placedConn]struct{})}
}

type placedConn struct {
	net.Conn

	places   *places
	source   netip.Prefix
	number   uint64 // in order of acceptance
	operator string // guarded by places.mu; empty: the place is not kept
}

// Accept implements [net.Listener].
func (p *places) Accept() (net.Conn, error) {
	for {
		c, err := p.Listener.Accept()
		if err != nil {
			return nil, err
		}
		added := &placedConn{Conn: c, places: p, source: limit.Source(c.RemoteAddr().String())}
		ended := p.add(added)
		if ended != nil {
			_ = ended.Close() // nothing is owed to it
		}
		if ended != added {
			return added, nil
		}
	}
}

// add returns the connection that must end, or nil.
func (p *places) add(c *placedConn) *placedConn {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.accepted++
	c.number = p.accepted
	p.held[c] = struct{}{}
	if len(p.held) <= maxConns {
		return nil
	}
	unknown := make(map[netip.Prefix]int)
	for h := range p.held {
		if h.operator == "" {
			unknown[h.source]++
		}
	}
	ended := c
	for h := range p.held {
		more := unknown[h.source] - unknown[ended.source]
		if h.operator == "" && (more > 0 || more == 0 && h.number < ended.number) {
			ended = h
		}
	}
	return ended
}

// Close implements [net.Conn].
func (c *placedConn) Close() error {
	c.places.mu.Lock()
	delete(c.places.held, c)
	c.places.mu.Unlock()
	return c.Conn.Close()
}

// keep notes the operator of the newest login, or that the login was refused.
func (c *placedConn) keep(operator string) {
	c.places.mu.Lock()
	defer c.places.mu.Unlock()
	if c.operator == operator {
		return
	}
	c.operator = ""
	kept, own := 0, 0
	for h := range c.places.held {
		if h.operator != "" {
			kept++
		}
		if h.operator == operator {
			own++
		}
	}
	if kept < maxKept && own < maxKeptPerOperator {
		c.operator = operator
	}
}

// connContext reports the logins on a connection to its place.
func connContext(ctx context.Context, c net.Conn) context.Context {
	if secure, ok := c.(*tls.Conn); ok {
		if placed, ok := secure.NetConn().(*placedConn); ok {
			return login.WithNotice(ctx, placed.keep)
		}
	}
	return ctx
}
