package fleet

import (
	"time"

	"muster/internal/wire"
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

// A Liveness says whether a node is connected to a broker.
type Liveness struct {
	Connected bool `json:"connected"`

	// Since is when the connection began or ended. If no broker has reported the end, it is that of [Node.Seen].
	Since time.Time `json:"since"`

	Broker string `json:"broker,omitempty"` // the last one, "" if not known
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
		x.brokers.set(&n.broker, b)
	case !c.Ended.IsZero() && same:
		n.end(nanos(c.Ended))
	}
}

func (n *node) end(at int64) {
	n.up, n.down, n.seen = 0, at, max(n.seen, at)
}

// Listed takes all connections that are open at a broker; none if it has gone.
func (x *Index) Listed(b Broker, open []Connection, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	numbers := make(map[uint64]bool, len(open))
	for _, c := range open {
		numbers[c.Number] = true
		x.change(b, c)
	}
	for i := range x.nodes {
		if n := &x.nodes[i]; n.up != 0 && !numbers[n.number] && x.brokers.values[n.broker] == b {
			n.end(nanos(now))
		}
	}
}

// Settled says that all brokers have been listed at a time; zero means that they do not answer, so nothing is known of
// connections. others means that nodes may be connected to brokers that were not asked.
func (x *Index) Settled(at time.Time, others bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.listed, x.others = at, others
}

// liveness returns nil if it is not known. The caller holds mu.
func (x *Index) liveness(n *node) *Liveness {
	t := x.of(n)
	if x.listed.IsZero() || t.State != provisioner.StateProvisioned || t.Protocol != provisioner.ProtocolMuster {
		return nil
	}
	l := &Liveness{Connected: n.up != 0, Broker: x.brokers.values[n.broker].Name}
	switch heard := x.heardOf(n); {
	case n.up != 0:
		l.Since = instant(n.up)
	case n.down != 0:
		l.Since = instant(n.down)
	case x.others && x.listed.Sub(instant(heard)) < unseenFor:
		return nil
	default:
		l.Since = instant(heard)
	}
	l.Since = l.Since.Truncate(time.Second)
	return l
}
