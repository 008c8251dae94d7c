package fleet

import (
	"math/big"
	"strings"
	"time"

	"muster/internal/paging"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/trust"
)

// A Node is a node in lists, with times to the second.
type Node struct {
	provisioner.Brief

	// Seen is the time of the last request on record or of the last report in the fleet.
	Seen time.Time `json:"seen,omitzero"`

	// Connection is nil for nodes that are not in the fleet, or whose agent is not muster's.
	Connection *Liveness `json:"connection,omitempty"`

	Revision trust.Revision `json:"revision"`
}

type node struct {
	id       wire.Identity
	revision trust.Revision // 0: no record

	// Unix time in ns, 0 for none.
	changed, enrolled, owned, issued, expires, seen int64

	up, down int64  // begin of the connection, or its end
	number   uint64 // of the connection at its broker

	key                          uint64   // first 64 bits of its hash
	serial, source               [16]byte // serials have 128 bits; an address
	shared, token, facts, broker uint32   // numbers of interned values
}

// row requires mu.
func (x *Index) row(n *node, by paging.Order) paging.Row {
	t := x.of(n)
	r := paging.Row{Name: string(n.id), Expires: n.expires, Changed: n.changed, Seen: x.heardOf(n)}
	r.State, r.Site = string(t.State), string(t.Site)
	if strings.HasSuffix(string(by), string(paging.ByConnected)) {
		if l := x.liveness(n); l != nil {
			r.Connected, r.Since = connectedRanks[l.Connected], nanos(l.Since)
		}
	}
	return r
}

// connectedRanks sort by text.
var connectedRanks = map[ConnectionState]string{Yes: "1", No: "2", Unknown: "3"}

func (n *node) recorded() bool { return n.revision != 0 }

// of requires mu.
func (x *Index) of(n *node) *provisioner.Traits { return &x.shared.values[n.shared] }

// heardOf is the time of the last report, or of the last request on record. The caller holds mu.
func (x *Index) heardOf(n *node) int64 {
	switch x.of(n).State {
	case provisioner.StateRevoked, provisioner.StateRetired:
		return max(n.seen, n.enrolled) // the last write was an operator's
	}
	return max(n.seen, n.changed)
}

// shown requires mu.
func (x *Index) shown(n *node) Node {
	return Node{
		Brief: provisioner.Brief{
			Identity:      n.id,
			Traits:        *x.of(n),
			Serial:        unpackSerial(n.serial),
			Expires:       instant(n.expires).Truncate(time.Second),
			Token:         x.tokens.values[n.token],
			Facts:         x.unpackFacts(x.facts.values[n.facts]),
			FirstEnrolled: instant(n.enrolled),
			Changed:       instant(n.changed),
			OwnedSince:    instant(n.owned).Truncate(time.Second),
		},
		Seen:       instant(x.heardOf(n)).Truncate(time.Second),
		Connection: x.liveness(n),
		Revision:   n.revision,
	}
}

// packSerial packs a serial of at most 128 bits.
func packSerial(s string) (b [16]byte) {
	if n, ok := new(big.Int).SetString(s, 16); ok && n.BitLen() <= 8*len(b) {
		n.FillBytes(b[:])
	}
	return b
}

func unpackSerial(b [16]byte) string {
	if b == [16]byte{} {
		return ""
	}
	return new(big.Int).SetBytes(b[:]).Text(16)
}

func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func instant(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns).UTC()
}

// interned numbers values that many nodes share, and drops unused ones. Make one with newInterned.
type interned[T comparable] struct {
	numbers map[T]uint32
	values  []T // by number; 0 is the zero value
	uses    []int
	free    []uint32 // numbers of dropped values
}

func newInterned[T comparable]() interned[T] {
	return interned[T]{numbers: make(map[T]uint32), values: make([]T, 1), uses: make([]int, 1)}
}

// set replaces a node's number by the number of v.
func (t *interned[T]) set(number *uint32, v T) {
	n, known := t.numbers[v]
	if !known {
		n = t.add(v)
	}
	t.uses[n]++
	old := *number
	*number = n
	if old == 0 {
		return
	}
	if t.uses[old]--; t.uses[old] == 0 {
		delete(t.numbers, t.values[old])
		clear(t.values[old : old+1])
		t.free = append(t.free, old)
	}
}

func (t *interned[T]) add(v T) (n uint32) {
	if last := len(t.free) - 1; last >= 0 {
		n, t.free = t.free[last], t.free[:last]
		t.values[n] = v
	} else {
		n = uint32(len(t.values))
		t.values, t.uses = append(t.values, v), append(t.uses, 0)
	}
	t.numbers[v] = n
	return n
}
