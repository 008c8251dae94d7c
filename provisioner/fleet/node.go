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

// A Node is the short form of a node in lists. Unknown members are empty.
type Node struct {
	Identity wire.Identity      `json:"identity"`
	State    provisioner.State  `json:"state"`
	Site     jwt.Site           `json:"site,omitempty"`
	Serial   string             `json:"serial,omitempty"`   // of the current certificate, lower-case hex
	Expires  time.Time          `json:"expires,omitzero"`   // to the second
	Offered  bool               `json:"offered,omitempty"`  // a certificate was issued and is not confirmed yet
	Cloned   bool               `json:"cloned,omitempty"`   // two live machines use its key
	Fault    string             `json:"fault,omitempty"`    // what keeps it from renewing, as its agent reports
	Token    jwt.TokenID        `json:"token_id,omitempty"` // that it enrolled with
	Policy   string             `json:"policy,omitempty"`   // digest at the last decision
	Reason   provisioner.Reason `json:"reason,omitempty"`   // of the last enrollment
	Agent    string             `json:"agent,omitempty"`
	Facts    facts.Facts        `json:"facts,omitempty"` // the kept ones

	FirstEnrolled time.Time `json:"first_enrolled,omitzero"`
	Changed       time.Time `json:"changed"` // last write of the record

	// OwnedSince is the time at which the node's key got the name, to the second. It differs for each holder of the
	// name: see [provisioner.Record.Owned].
	OwnedSince time.Time `json:"owned_since,omitzero"`

	// Seen is the time, to the second, of the last request on record or of the last report in the fleet.
	Seen time.Time `json:"seen,omitzero"`

	Revision trust.Revision `json:"revision"`
}

type node struct {
	id       wire.Identity
	revision trust.Revision // 0: no record

	// Unix time in ns, 0 for none.
	changed, enrolled, owned, expires, seen int64

	serial               [16]byte // serials have 128 bits
	shared, token, facts uint32   // numbers of interned values
}

// shared are values that many nodes have in common.
type shared struct {
	state           provisioner.State
	site            jwt.Site
	policy          string
	reason          provisioner.Reason
	agent, fault    string
	offered, cloned bool
}

func (n *node) recorded() bool { return n.revision != 0 }

// of requires mu.
func (x *Index) of(n *node) *shared { return &x.shared.values[n.shared] }

// heardOf is the time of the last report, or of the last request on record. The caller holds mu.
func (x *Index) heardOf(n *node) int64 {
	switch x.of(n).state {
	case provisioner.StateRevoked, provisioner.StateRetired:
		return max(n.seen, n.enrolled) // the last write was an operator's
	}
	return max(n.seen, n.changed)
}

// shown requires mu.
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
		Fault:         s.fault,
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
