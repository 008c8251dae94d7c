package fleet

import (
	"math/big"
	"time"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/facts"
	"muster/provisioner/trust"
)

// A Node is a node in short. What is not known is empty or zero.
type Node struct {
	Identity wire.Identity      `json:"identity"`
	State    provisioner.State  `json:"state"`
	Site     jwt.Site           `json:"site,omitempty"`
	Serial   string             `json:"serial,omitempty"`   // of the certificate in use, lower-case hex
	Expires  time.Time          `json:"expires,omitzero"`   // when that ends, to the second
	Offered  bool               `json:"offered,omitempty"`  // a certificate waits for the node's confirmation
	Cloned   bool               `json:"cloned,omitempty"`   // two live machines speak for it
	Token    jwt.TokenID        `json:"token_id,omitempty"` // with which it enrolled
	Policy   string             `json:"policy,omitempty"`   // digest of the one that decided last
	Reason   provisioner.Reason `json:"reason,omitempty"`   // on what ground it was let in
	Agent    string             `json:"agent,omitempty"`
	Facts    facts.Facts        `json:"facts,omitempty"` // of those that are kept, what the node has said

	FirstEnrolled time.Time `json:"first_enrolled,omitzero"`
	Changed       time.Time `json:"changed"` // when the record was last written

	// OwnedSince is since when this machine has the name, to the second: see
	// [provisioner.Record.Owned]. Another one has another.
	OwnedSince time.Time `json:"owned_since,omitzero"`

	// Seen is when the node last asked for something that was written, or said in
	// the fleet that it is there, to the second.
	Seen time.Time `json:"seen,omitzero"`

	Revision trust.Revision `json:"revision"`
}

// A node is a node in the index.
type node struct {
	id       wire.Identity
	revision trust.Revision // 0: it has no record

	// Unix time in ns, 0 for none.
	changed, enrolled, owned, expires, seen int64

	serial               [16]byte // ours have 128 bits
	shared, token, facts uint32   // numbers of what is interned
}

// shared is what many nodes have in common.
type shared struct {
	state           provisioner.State
	site            jwt.Site
	policy          string
	reason          provisioner.Reason
	agent           string
	offered, cloned bool
}

// recorded reports whether the node has a record.
func (n *node) recorded() bool { return n.revision != 0 }

// of returns what a node shares with others. The caller holds mu.
func (x *Index) of(n *node) *shared { return &x.shared.values[n.shared] }

// heardOf is when a node was last heard of: in the fleet, or by its record that was written. The caller holds mu.
func (x *Index) heardOf(n *node) int64 {
	switch x.of(n).state {
	case provisioner.StateRevoked, provisioner.StateRetired:
		return max(n.seen, n.enrolled) // it was an operator who has changed the record
	}
	return max(n.seen, n.changed)
}

// shown returns a node as it is shown. The caller holds mu.
func (x *Index) shown(n *node) Node {
	s := x.of(n)
	return Node{
		Identity:      n.id,
		State:         s.state,
		Site:          s.site,
		Serial:        unpackSerial(n.serial),
		Expires:       instant(n.expires).Truncate(time.Second),
		Offered:       s.offered,
		Cloned:        s.cloned,
		Token:         x.tokens.values[n.token],
		Policy:        s.policy,
		Reason:        s.reason,
		Agent:         s.agent,
		Facts:         x.unpackFacts(x.facts.values[n.facts]),
		FirstEnrolled: instant(n.enrolled),
		Changed:       instant(n.changed),
		OwnedSince:    instant(n.owned).Truncate(time.Second),
		Seen:          instant(x.heardOf(n)).Truncate(time.Second),
		Revision:      n.revision,
	}
}

// packSerial returns a serial number, of at most 128 bits, in its bytes.
func packSerial(s string) (b [16]byte) {
	if n, ok := new(big.Int).SetString(s, 16); ok && n.BitLen() <= 8*len(b) {
		n.FillBytes(b[:])
	}
	return b
}

// unpackSerial is the inverse of packSerial.
func unpackSerial(b [16]byte) string {
	if b == [16]byte{} {
		return ""
	}
	return new(big.Int).SetBytes(b[:]).Text(16)
}

// nanos returns a time in Unix ns, 0 for none.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// instant is the inverse of nanos, in UTC.
func instant(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns).UTC()
}
