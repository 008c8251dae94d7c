package fleet

import (
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"muster/provisioner/trust"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/facts"
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

// states and reasons are what is kept as a number. What is not in the list is 0.
var (
	states = []provisioner.State{
		provisioner.StateNone, provisioner.StateEnrolled, provisioner.StateProvisioned, provisioner.StateRevoked, provisioner.StateRetired,
	}
	reasons = []provisioner.Reason{
		"", provisioner.ReasonNew, provisioner.ReasonReplay, provisioner.ReasonContinue, provisioner.ReasonContinuity,
		provisioner.ReasonGrant, provisioner.ReasonRenew, provisioner.ReasonOneTimeToken,
	}
	stateByOperator  = [2]uint8{number(states, provisioner.StateRevoked), number(states, provisioner.StateRetired)}
	stateProvisioned = number(states, provisioner.StateProvisioned)
)

// number returns the place of v in a list, 0 if it is not in it.
func number[T comparable](list []T, v T) uint8 { return uint8(max(0, slices.Index(list, v))) }

// packSerial returns a serial number in its bytes; ours have 128 bits.
func packSerial(s string) (b [16]byte) {
	if n := len(s); n <= 32 {
		raw, err := hex.DecodeString(strings.Repeat("0", 32-n) + s)
		if err == nil {
			copy(b[:], raw)
		}
	}
	return b
}

// unpackSerial is the inverse of packSerial, with an even number of digits.
func unpackSerial(b [16]byte) string {
	i := 0
	for i < len(b) && b[i] == 0 {
		i++
	}
	return strings.TrimPrefix(hex.EncodeToString(b[i:]), "0")
}

func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func seconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

// instant returns a time in UTC, the zero time for none.
func instant(s, ns int64) time.Time {
	if s == 0 && ns == 0 {
		return time.Time{}
	}
	return time.Unix(s, ns).UTC()
}
