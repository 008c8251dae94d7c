// Package events defines events as CloudEvents, their log and subscriptions, webhooks and alarms.
package events

import (
	"regexp"
	"strings"
	"time"

	"muster/internal/wire"
	"muster/jwt"
)

// A Type is the `type` of a CloudEvent; see [Types].
type Type string

// Events of enrollment.
const (
	Enrolled    Type = "io.muster.node.enrolled"
	Renewed     Type = "io.muster.node.renewed"
	Provisioned Type = "io.muster.node.provisioned"
	Refused     Type = "io.muster.node.refused"
	Attempt     Type = "io.muster.attempt.refused"
)

// Events of operators' orders. They have the operator and the reason.
const (
	Revoked       Type = "io.muster.node.revoked"
	Retired       Type = "io.muster.node.retired"
	Granted       Type = "io.muster.node.granted"
	Approved      Type = "io.muster.node.approved"
	Rejected      Type = "io.muster.node.rejected"
	Forgotten     Type = "io.muster.node.forgotten"
	Allowed       Type = "io.muster.allow.added"
	Disallowed    Type = "io.muster.allow.removed"
	Commanded     Type = "io.muster.node.commanded"
	TokenRevoked  Type = "io.muster.token.revoked"
	SignerAdded   Type = "io.muster.signer.added"
	SignerRemoved Type = "io.muster.signer.removed"

	OperatorAdded   Type = "io.muster.operator.added"
	OperatorRemoved Type = "io.muster.operator.removed"
	BackupBegun     Type = "io.muster.backup.begun"
)

// Events of service certificates.
const (
	CertificateIssued   Type = "io.muster.certificate.issued"
	CertificateRenewed  Type = "io.muster.certificate.renewed"
	CertificateFailed   Type = "io.muster.certificate.failed"
	CertificateRevoked  Type = "io.muster.certificate.revoked"
	CertificateApproved Type = "io.muster.certificate.approved"
	CertificateRejected Type = "io.muster.certificate.rejected"
)

// LoginRefused reports a failed login.
const LoginRefused Type = "io.muster.operator.refused"

// Events of sessions by OpenID Connect.
const (
	SessionBegun Type = "io.muster.session.begun"
	SessionEnded Type = "io.muster.session.ended" // before its time
)

// Events of token uses and of pauses.
const (
	TokenReleased Type = "io.muster.token.released"
	TokenUnfrozen Type = "io.muster.token.unfrozen"
	RecoveryEnded Type = "io.muster.recovery.ended"
	Paused        Type = "io.muster.enrollment.paused"
	Resumed       Type = "io.muster.enrollment.resumed"
)

// Events of alarms and of the clock.
const (
	AlarmRaised  Type = "io.muster.alarm.raised"
	AlarmCleared Type = "io.muster.alarm.cleared" // Elapsed is how long the alarm was active

	// ClockAccepted says that an operator has trusted the clock; see [trust.Clock.Accept].
	ClockAccepted Type = "io.muster.clock.accepted"
)

// Events about policies. Policy is the digest of the policy in use.
const (
	PolicyReloaded Type = "io.muster.policy.reloaded"
	PolicyRefused  Type = "io.muster.policy.refused"

	// ShadowDiffers: the shadow policy would decide differently. Digest is its digest, Cause its decision.
	ShadowDiffers Type = "io.muster.policy.shadow_differs"
)

// Cloned says that two live machines use one key.
const Cloned Type = "io.muster.node.cloned"

// Events of faults; see provisioner.Fault.
const (
	Faulty     Type = "io.muster.node.fault"
	FaultEnded Type = "io.muster.node.fault_ended"
)

// Events of unmodified agents' runs, as the nodes report them.
const (
	RunFailed    Type = "io.muster.run.failed"
	RunRecovered Type = "io.muster.run.recovered"
)

// WebhookTest goes to one webhook and to no stream.
const WebhookTest Type = "io.muster.webhook.test"

// An Event reports what happened. It holds no secret.
type Event struct {
	Type    Type          `json:"-"`
	Time    time.Time     `json:"-"`
	Node    string        `json:"node,omitempty"` // identity; in attempts only claimed, cut to 253 bytes
	Code    wire.Code     `json:"code,omitempty"`
	Cause   string        `json:"cause,omitempty"`
	Reason  string        `json:"reason,omitempty"`
	Key     string        `json:"key_hash,omitempty"` // the key that an operator decided about
	Name    string        `json:"name,omitempty"`     // of a service certificate
	Serial  string        `json:"serial,omitempty"`
	Digest  string        `json:"digest,omitempty"`
	Pattern wire.Pattern  `json:"pattern,omitempty"`
	Token   jwt.TokenID   `json:"token_id,omitempty"`
	Signer  jwt.SignerID  `json:"signer,omitempty"`
	Site    jwt.Site      `json:"site,omitempty"`
	Source  string        `json:"source,omitempty"`
	Sealed  bool          `json:"sealed,omitempty"`
	Attempt string        `json:"attempt,omitempty"`
	Policy  string        `json:"policy,omitempty"`
	Elapsed time.Duration `json:"elapsed_ns,omitempty"`
	// unreported events before this one: attempts of all sources, else events of this node
	LeftOut  int64     `json:"left_out,omitempty"`
	Operator string    `json:"operator,omitempty"`
	Role     string    `json:"role,omitempty"`
	Verb     wire.Verb `json:"verb,omitempty"`     // of a command
	Command  string    `json:"command,omitempty"`  // its id
	By       string    `json:"by,omitempty"`       // operator
	Why      string    `json:"why,omitempty"`      // the operator's reason
	Renewals bool      `json:"renewals,omitempty"` // paused: renewals too
	Repeated bool      `json:"repeated,omitempty"` // a retry got the same answer; nothing was written
}

// tokenShape matches a JWT, even a truncated one, or a session.
var tokenShape = regexp.MustCompile(`eyJ[A-Za-z0-9_-]{6,}(\.[A-Za-z0-9_-]*)*|muster\.[0-9a-f]{32}\.[A-Za-z0-9_-]*`)

// Scrub replaces tokens in text, since clients with bugs may put them anywhere.
func Scrub(text string) string { return tokenShape.ReplaceAllString(text, "(secret)") }

// maxErrorTextBytes is more than any error text of muster's own.
const maxErrorTextBytes = 1024

// BoundedText is [ErrorText] cut to 1 KiB, for errors that strangers can cause.
func BoundedText(err error) string {
	text := ErrorText(err)
	if len(text) <= maxErrorTextBytes {
		return text
	}
	return strings.ToValidUTF8(Cut(text, maxErrorTextBytes), "") + "…"
}

// ErrorText returns the text of err without tokens, "" for nil.
func ErrorText(err error) string {
	if err == nil {
		return ""
	}
	return Scrub(err.Error())
}

// Cut returns at most n bytes of text.
func Cut(text string, n int) string { return text[:min(len(text), n)] }
