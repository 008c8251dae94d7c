package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
)

// A Broker is one run of a broker.
type Broker struct{ ID, Name string }

// A Connection is a provisioned node's connection, as a broker reports it.
type Connection struct {
	Node   wire.Identity
	Number uint64    // at the broker
	Since  time.Time // by the broker's clock
	Ended  time.Time // zero while it is open
}

// A ConnectionState says whether a node is connected to a broker.
type ConnectionState string

// Values of [ConnectionState].
const (
	Yes     ConnectionState = "yes"
	No      ConnectionState = "no"
	Unknown ConnectionState = "unknown" // see [Index.Settled]
)

// A Liveness is what brokers say of a node.
type Liveness struct {
	Connected ConnectionState `json:"connected"`

	// Since is when the connection began or ended, zero if unknown. If no broker has reported the end, it is that of
	// [Node.Seen].
	Since time.Time `json:"since,omitzero"`

	Broker string `json:"broker,omitempty"` // the last one, "" if not known
}

// Liveness returns [Node.Connection], or an empty one.
func (n *Node) Liveness() Liveness {
	if n.Connection == nil {
		return Liveness{}
	}
	return *n.Connection
}

// An end of a connection may have been missed if the node last reported unseenFor ago: twice the default interval of
// reports.
const unseenFor = time.Hour

// Changed takes the begin or end of a connection.
func (x *Index) Changed(b Broker, c Connection) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.change(b, c)
}

// change requires mu.
func (x *Index) change(b Broker, c Connection) {
	n := x.node(c.Node)
	same := n.number == c.Number && x.brokers.values[n.broker] == b
	switch {
	case c.Ended.IsZero() && (same || n.up <= nanos(c.Since)):
		n.up, n.down, n.number = nanos(c.Since), 0, c.Number
		x.changes++
		x.brokers.set(&n.broker, b)
	case !c.Ended.IsZero() && same:
		x.end(n, nanos(c.Ended))
	}
}

// end requires mu.
func (x *Index) end(n *node, at int64) {
	x.changes++
	n.up, n.down, n.seen = 0, at, max(n.seen, at)
}

// Open has open connections by broker and number.
type Open map[Broker]map[uint64]Connection

// Set adds a connection, or removes one that has ended.
func (o Open) Set(b Broker, c Connection) {
	if o[b] == nil {
		o[b] = make(map[uint64]Connection)
	}
	if o[b][c.Number] = c; !c.Ended.IsZero() {
		delete(o[b], c.Number)
	}
}

// Listed takes all open connections.
func (x *Index) Listed(open Open, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range x.nodes {
		n := &x.nodes[i]
		if _, still := open[x.brokers.values[n.broker]][n.number]; n.up != 0 && !still {
			x.end(n, nanos(now))
		}
	}
	for b, all := range open {
		for _, c := range all {
			x.change(b, c)
		}
	}
}

// Settled says that all brokers have been listed at a time; zero means that they do not answer, so nothing is known of
// connections. more means that nodes may be connected to brokers that were not asked. After the first time nothing is
// known of nodes from before that are not connected: a broker that has just begun waits for them.
func (x *Index) Settled(at time.Time, more bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.listed, x.more, x.first = at, more, x.listed.IsZero()
	x.quiet = x.quietSites()
}

// liveness returns nil for a node that is not in the fleet, or whose agent is not muster's. The caller holds mu.
func (x *Index) liveness(n *node) *Liveness {
	if t := x.of(n); t.State != provisioner.StateProvisioned || t.Protocol != provisioner.ProtocolMuster {
		return nil
	}
	l, at := &Liveness{Connected: No, Broker: x.brokers.values[n.broker].Name}, x.heardOf(n)
	if n.down != 0 && (!x.more || at-n.down < int64(lostFor)) { // else it was heard of since, over another broker
		at = n.down
	}
	switch {
	case x.listed.IsZero(), n.up == 0 && at != n.down && x.more && x.listed.Sub(instant(at)) < unseenFor,
		n.up|n.down == 0 && x.first && instant(at).Before(x.listed.Truncate(time.Second)):
		return &Liveness{Connected: Unknown}
	case n.up != 0:
		l.Connected, at = Yes, n.up
	}
	l.Since = instant(at).Truncate(time.Second)
	return l
}

// linked reports whether the filter selects a node with this liveness.
func (f *Filter) linked(l *Liveness) bool {
	return l != nil && (f.Connected == "" || l.Connected == f.Connected) &&
		(f.LinkBefore.IsZero() || l.Connected != Unknown && l.Since.Before(f.LinkBefore))
}

// A site is quiet if most of its connections have ended within lostWithin, at least minLost, and are not back after
// lostFor. Nodes that have been off for longer are the operators' affair.
const (
	minLost    = 3
	lostFor    = time.Minute
	lostWithin = 24 * time.Hour
)

// quietSites requires mu.
func (x *Index) quietSites() error {
	open, lost := make(map[jwt.Site]int), make(map[jwt.Site]int)
	for i := range x.nodes {
		n := &x.nodes[i]
		switch l := x.liveness(n); {
		case l == nil || l.Connected == Unknown:
		case l.Connected == Yes:
			open[x.of(n).Site]++
		case n.down != 0 && x.listed.Sub(l.Since) >= lostFor && x.listed.Sub(l.Since) < lostWithin:
			lost[x.of(n).Site]++
		}
	}
	var errs []error
	for _, site := range slices.Sorted(maps.Keys(lost)) {
		if n := lost[site]; n >= minLost && n > open[site] {
			errs = append(errs, fmt.Errorf("site %s: %d nodes have lost their connection, still connected: %d",
				cmp.Or(string(site), "-"), n, open[site]))
		}
	}
	return errors.Join(errs...)
}

// Quiet returns an error that names the sites most of whose nodes have lost their connection within a day, nil if there
// are none.
func (x *Index) Quiet() error {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.quiet
}
