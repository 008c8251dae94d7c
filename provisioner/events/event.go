// Package events is what a provisioner reports: the events of enrollment and of operators' orders as CloudEvents, the
// log in which they are read again, subscriptions and webhooks and alarms.
// It decides nothing and stores nothing.
package events

import (
	"time"

	"muster/internal/wire"
	"muster/jwt"
)

// A Type is the `type` of a CloudEvent. Types are never renamed.
type Type string

// The events of enrollment.
const (
	Enrolled    Type = "io.muster.node.enrolled"    // a certificate is on record and on its way
	Renewed     Type = "io.muster.node.renewed"     // a certificate in place of a live one is on record and on its way
	Provisioned Type = "io.muster.node.provisioned" // the node has confirmed it
	Refused     Type = "io.muster.node.refused"     // authenticated, and refused
	Attempt     Type = "io.muster.attempt.refused"  // not authenticated: the identity is a stranger's word, without a Serial
)

// The events of what operators order. They say who and why.
const (
	Revoked       Type = "io.muster.node.revoked"
	Retired       Type = "io.muster.node.retired"
	Granted       Type = "io.muster.node.granted"
	Approved      Type = "io.muster.node.approved"  // of Key
	Rejected      Type = "io.muster.node.rejected"  // of Key
	Forgotten     Type = "io.muster.node.forgotten" // of Key: it no longer waits, and what was said of it no longer counts
	Allowed       Type = "io.muster.allow.added"    // of Pattern
	Disallowed    Type = "io.muster.allow.removed"  // of Pattern
	Commanded     Type = "io.muster.node.commanded" // Verb; with a Cause if the node may not have taken it
	TokenRevoked  Type = "io.muster.token.revoked"
	SignerAdded   Type = "io.muster.signer.added"
	SignerRemoved Type = "io.muster.signer.removed"

	OperatorAdded   Type = "io.muster.operator.added"
	OperatorRemoved Type = "io.muster.operator.removed"
	BackupBegun     Type = "io.muster.backup.begun"
)

// LoginRefused says that somebody has not come in over HTTPS. The operator
// is a stranger's word.
const LoginRefused Type = "io.muster.operator.refused"

// The events of tokens' uses and of pauses.
const (
	TokenReleased Type = "io.muster.token.released" // an operator gave a use back
	TokenUnfrozen Type = "io.muster.token.unfrozen" // an operator says how many uses a token has left after a recovery
	RecoveryEnded Type = "io.muster.recovery.ended"
	Paused        Type = "io.muster.enrollment.paused"
	Resumed       Type = "io.muster.enrollment.resumed"
)

// The events of alarms; see [Alarms]. Their node is the provisioner itself.
const (
	AlarmRaised  Type = "io.muster.alarm.raised"
	AlarmCleared Type = "io.muster.alarm.cleared" // Elapsed is how long it stood

	// ClockAccepted says that an operator took the clock's word against
	// the mark's; see [trust.Clock.Accept].
	ClockAccepted Type = "io.muster.clock.accepted"
)

// The events of the policy that decides. Policy is the digest of the one in use
// from then on; of a refused one, Cause says what is wrong with the files.
const (
	PolicyReloaded Type = "io.muster.policy.reloaded"
	PolicyRefused  Type = "io.muster.policy.refused"

	// ShadowDiffers says that the shadow policy would decide otherwise about a
	// node. Policy decided, Digest is of the shadow, Cause says what it would be.
	ShadowDiffers Type = "io.muster.policy.shadow_differs"
)

// Cloned says that two live machines use one key; see [provisioner.Cloned].
const Cloned Type = "io.muster.node.cloned"

// WebhookTest is what `muster webhook test` sends. It is in no stream.
const WebhookTest Type = "io.muster.webhook.test"

// An Event says what happened, for whoever watches the fleet. It holds no
// secret.
type Event struct {
	Type     Type          `json:"-"`
	Time     time.Time     `json:"-"`
	Node     string        `json:"node,omitempty"` // identity; in attempts a stranger's word, cut to 253 bytes
	Code     wire.Code     `json:"code,omitempty"` // the true one, in refusals
	Cause    string        `json:"cause,omitempty"`
	Reason   string        `json:"reason,omitempty"`
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
	LeftOut  int64         `json:"left_out,omitempty"` // in attempts: how many before it, from anywhere, were not reported; else of its node
	Operator string        `json:"operator,omitempty"` // who is added, removed or not let in
	Role     string        `json:"role,omitempty"`     // of who is added
	Verb     wire.Verb     `json:"verb,omitempty"`     // of a command
	Command  string        `json:"command,omitempty"`  // its id
	By       string        `json:"by,omitempty"`       // who has ordered it
	Why      string        `json:"why,omitempty"`      // in the operator's words
	Renewals bool          `json:"renewals,omitempty"` // paused: those too
	Repeated bool          `json:"repeated,omitempty"` // nothing was written: a retry got its answer again
}
