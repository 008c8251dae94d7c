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
	EventRenewed     EventType = "io.muster.node.renewed"     // a certificate in place of a live one is on record and on its way
	EventProvisioned EventType = "io.muster.node.provisioned" // the node has confirmed it
	EventRefused     EventType = "io.muster.node.refused"     // authenticated, and refused
	EventAttempt     EventType = "io.muster.attempt.refused"  // not authenticated: the identity is a stranger's word, without a Serial
)

// The events of what operators order. They say who and why.
const (
	EventRevoked       EventType = "io.muster.node.revoked"
	EventRetired       EventType = "io.muster.node.retired"
	EventRetireLeftOut EventType = "io.muster.node.retire_left_out" // it waited for the store, and others have decided about the name since
	EventGranted       EventType = "io.muster.node.granted"
	EventApproved      EventType = "io.muster.node.approved"  // of Key
	EventRejected      EventType = "io.muster.node.rejected"  // of Key
	EventForgotten     EventType = "io.muster.node.forgotten" // of Key: it no longer waits, and what was said of it no longer counts
	EventAllowed       EventType = "io.muster.allow.added"    // of Pattern
	EventDisallowed    EventType = "io.muster.allow.removed"  // of Pattern
	EventTokenIssued   EventType = "io.muster.token.issued"   // for Node
	EventCommanded     EventType = "io.muster.node.commanded" // Verb; with a Cause if the node may not have taken it
	EventTokenRevoked  EventType = "io.muster.token.revoked"
	EventSignerAdded   EventType = "io.muster.signer.added"
	EventSignerRemoved EventType = "io.muster.signer.removed"

	EventOperatorAdded   EventType = "io.muster.operator.added"
	EventOperatorRemoved EventType = "io.muster.operator.removed"
	EventBackup          EventType = "io.muster.backup.begun"
)

// EventLoginRefused says that somebody has not come in over HTTPS. The operator
// is a stranger's word.
const EventLoginRefused EventType = "io.muster.operator.refused"

// The events of alarms; see [Alarms]. Their node is the provisioner itself.
const (
	EventAlarmRaised  EventType = "io.muster.alarm.raised"
	EventAlarmCleared EventType = "io.muster.alarm.cleared" // Elapsed is how long it stood

	// EventClockAccepted says that an operator took the clock's word against
	// the mark's; see [Clock.Accept].
	EventClockAccepted EventType = "io.muster.clock.accepted"
)

// The events of the policy that decides. Policy is the digest of the one in use
// from then on; of a refused one, Cause says what is wrong with the files.
const (
	EventPolicyReloaded EventType = "io.muster.policy.reloaded"
	EventPolicyRefused  EventType = "io.muster.policy.refused"

	// EventShadowDiffers says that the shadow policy would decide otherwise about a
	// node. Policy decided, Digest is of the shadow, Cause says what it would be.
	EventShadowDiffers EventType = "io.muster.policy.shadow_differs"
)

// EventCloned says that two live machines use one key; see [Cloned].
const EventCloned EventType = "io.muster.node.cloned"

// EventWebhookTest is what `muster webhook test` sends. It is in no stream.
const EventWebhookTest EventType = "io.muster.webhook.test"

// An Event says what happened, for whoever watches the fleet. It holds no
// secret.
type Event struct {
	Type     EventType     `json:"-"`
	Time     time.Time     `json:"-"`
	Node     string        `json:"node,omitempty"` // identity; in attempts a stranger's word, cut to 253 bytes
	Code     wire.Code     `json:"code,omitempty"` // the true one, in refusals
	Cause    string        `json:"cause,omitempty"`
	Reason   Reason        `json:"reason,omitempty"`
	Key      string        `json:"key_hash,omitempty"` // that an operator decided about
	Serial   string        `json:"serial,omitempty"`
	Digest   string        `json:"digest,omitempty"`
	Pattern  wire.Pattern  `json:"pattern,omitempty"` // of the allow-list's entry
	Token    jwt.TokenID   `json:"token_id,omitempty"`
	Signer   jwt.SignerID  `json:"signer,omitempty"`
	Site     jwt.Site      `json:"site,omitempty"`
	Source   string        `json:"source,omitempty"`
	Sealed   bool          `json:"sealed,omitempty"` // of a machine that enrolls: the request, or the confirmation, came sealed
	Attempt  string        `json:"attempt,omitempty"`
	Policy   string        `json:"policy,omitempty"`
	Elapsed  time.Duration `json:"elapsed_ns,omitempty"`
	LeftOut  int64         `json:"left_out,omitempty"`  // in attempts: how many before it, from anywhere, were not reported; else of its node
	OfSource int64         `json:"of_source,omitempty"` // in refusals: how many its source has made, with this one
	Operator string        `json:"operator,omitempty"`  // who is added, removed or not let in
	Role     OperatorRole  `json:"role,omitempty"`      // of who is added
	Verb     wire.Verb     `json:"verb,omitempty"`      // of a command
	Command  string        `json:"command,omitempty"`   // its id
	By       string        `json:"by,omitempty"`        // who has ordered it
	Why      string        `json:"why,omitempty"`       // in the operator's words
	Renewals bool          `json:"renewals,omitempty"`  // paused: those too
	Repeated bool          `json:"repeated,omitempty"`  // nothing was written: a retry got its answer again
}

// authentication lists the refusals of requests about which nothing is proven.
// Their events go to a bounded stream of their own, so that a flood of
// forgeries cannot push the fleet's history out.
var authentication = map[wire.Code]bool{
	wire.CodeBadRequest: true, wire.CodeTooLarge: true, wire.CodeUnsupportedVersion: true, wire.CodeSealedUnsupported: true,
	wire.CodeIdentityInvalid: true, wire.CodeTokenInvalid: true, wire.CodeTokenExpired: true, wire.CodeTokenNotYetValid: true,
	wire.CodeNotIssued: true, wire.CodeAppliedSignature: true, wire.CodeSourceLimited: true,
	wire.CodeClockBehind:   true, // checked before the token
	wire.CodeSealedInvalid: true,
}

// RefusalEvent returns the event for a refusal.
func RefusalEvent(r *Refusal, now time.Time, source string) Event {
	e := Event{Type: EventRefused, Time: now, Node: r.Node, Code: r.Code, Source: source}
	if authentication[r.Code] {
		e.Type = EventAttempt
	}
	if len(e.Node) > wire.MaxIdentityBytes {
		// Dots at its end, or what is cut could be another node's name.
		e.Node = e.Node[:wire.MaxIdentityBytes-3] + "..."
	}
	e.Node, e.Cause = scrub(e.Node), causeOf(r.Err)
	return e
}
