package provisioner

import (
	"time"

	"muster/internal/wire"
	"muster/jwt"
)

// An EventType is the `type` of a CloudEvent. Types are never renamed.
type EventType string

// The events of enrollment.
const (
	EventEnrolled    EventType = "io.muster.node.enrolled"    // a certificate is on record and on its way
	EventProvisioned EventType = "io.muster.node.provisioned" // the node has confirmed it
	EventRefused     EventType = "io.muster.node.refused"     // authenticated, and refused
	EventAttempt     EventType = "io.muster.attempt.refused"  // not authenticated: the identity is a stranger's word
)

// An Event says what happened, for whoever watches the fleet. It holds no
// secret.
type Event struct {
	Type     EventType     `json:"-"`
	Time     time.Time     `json:"-"`
	Node     string        `json:"node,omitempty"` // identity; in attempts a stranger's word, cut to 253 bytes
	Code     wire.Code     `json:"code,omitempty"` // the true one, in refusals
	Cause    string        `json:"cause,omitempty"`
	Reason   Reason        `json:"reason,omitempty"`
	Serial   string        `json:"serial,omitempty"`
	Digest   string        `json:"digest,omitempty"`
	Token    jwt.TokenID   `json:"token_id,omitempty"`
	Signer   jwt.SignerID  `json:"signer,omitempty"`
	Site     jwt.Site      `json:"site,omitempty"`
	Source   string        `json:"source,omitempty"`
	Attempt  string        `json:"attempt,omitempty"`
	Policy   string        `json:"policy,omitempty"`
	Elapsed  time.Duration `json:"elapsed_ns,omitempty"`
	Repeated bool          `json:"repeated,omitempty"` // nothing was written: a retry got its answer again
}

// authentication lists the refusals of requests about which nothing is proven.
// Their events go to a bounded stream of their own, so that a flood of
// forgeries cannot push the fleet's history out.
var authentication = map[wire.Code]bool{
	wire.CodeBadRequest: true, wire.CodeTooLarge: true, wire.CodeUnsupportedVersion: true, wire.CodeSealedUnsupported: true,
	wire.CodeIdentityInvalid: true, wire.CodeTokenInvalid: true, wire.CodeTokenExpired: true, wire.CodeTokenNotYetValid: true,
	wire.CodeNotIssued: true, wire.CodeAppliedSignature: true,
}

// RefusalEvent returns the event for a refusal.
func RefusalEvent(r *Refusal, now time.Time, source string) Event {
	e := Event{Type: EventRefused, Time: now, Node: r.Node, Code: r.Code, Source: source}
	if authentication[r.Code] {
		e.Type = EventAttempt
	}
	if len(e.Node) > wire.MaxIdentityBytes {
		e.Node = e.Node[:wire.MaxIdentityBytes]
	}
	if r.Err != nil {
		e.Cause = r.Err.Error()
	}
	return e
}
