package events

import (
	"slices"
	"strings"
)

// A Meaning documents a [Type].
type Meaning struct {
	Type Type
	What string // one sentence

	// Always are the members that every such event has, Sometimes those that it may have. There are no other members.
	Always, Sometimes []string
}

// Members by the cause of an event.
var (
	fromToken  = []string{"token_id", "signer", "site", "source", "policy"}
	byOperator = []string{"by", "why"}
)

// Types is the table of all events, in the order of docs/reference/events.md. Types and members are never renamed.
var Types = []Meaning{
	{Enrolled, "A node has enrolled: its certificate is on record and on its way. With repeated it was before: of a node that asks again and again, five are said at once, and one each ten minutes; left_out counts the others.",
		[]string{"node", "reason", "serial", "digest", "attempt"}, slices.Concat(fromToken, []string{"sealed", "elapsed_ns", "repeated", "left_out"})},
	{Renewed, "A node has renewed: a certificate in place of its live one is on record and on its way. With repeated it was before, and is as often as for a node that has enrolled.",
		[]string{"node", "reason", "serial", "digest", "attempt"}, slices.Concat(fromToken, []string{"elapsed_ns", "repeated", "left_out"})},
	{Provisioned, "A node has confirmed that certificate and configuration are on its disk. With repeated it had done so before: the answer to that was lost. Of one node 20 of these are said at once, and one each half minute; left_out counts the others.",
		[]string{"node", "serial", "digest", "attempt"}, slices.Concat(fromToken, []string{"reason", "sealed", "repeated", "left_out"})},
	{Refused, "A node whose token, or certificate, is good was refused. A token may be good for many names: the node is what the request says. A key that waits is an event again after ten minutes; `muster node pending` counts how often it asked. Of refusals since enrollment is paused ten a second are events, of refusals for lack of room none; the metrics count them all. With code offer_unusable the node has refused: it cannot use what it was offered, the cause is in its words, and it says so again each hour. Of these, and of the renewals of one node that are refused, 20 are said at once, and one each half minute; left_out counts the others.",
		[]string{"code"}, slices.Concat([]string{"node", "cause", "reason", "attempt", "left_out"}, fromToken)},
	{Attempt, "A request that proves nothing was refused, or a connection, whatever it presents. The node is as claimed. With a serial it is a node that has shown that certificate of its own to a broker of the fleet, and was not admitted.",
		[]string{"code"}, slices.Concat([]string{"node", "cause", "reason", "serial", "attempt", "left_out"}, fromToken)},
	{Revoked, "An operator's revocation of a node is on its record.",
		[]string{"node", "attempt"}, byOperator},
	{Retired, "An operator has freed a node's name for any key.",
		[]string{"node"}, append([]string{"attempt"}, byOperator...)},
	{Granted, "An operator lets another key take a name over, once.",
		[]string{"node"}, byOperator},
	{Approved, "An operator, or the command that approves, lets a key that waits have its name.",
		[]string{"node", "key_hash"}, byOperator},
	{Rejected, "An operator has rejected a key that waits: it is denied.",
		[]string{"node", "key_hash"}, byOperator},
	{Forgotten, "An operator has removed a waiting key from the list, with the verdict about it.",
		[]string{"node", "key_hash"}, byOperator},
	{Commanded, "An operator has a node do something. With a cause the node may not have taken it.",
		[]string{"node", "verb", "command"}, append([]string{"cause", "repeated"}, byOperator...)},
	{Cloned, "Two live machines use one key.",
		[]string{"node", "cause"}, []string{"serial", "attempt"}},
	{Allowed, "An operator has put a pattern of names on the allow-list.",
		[]string{"pattern"}, byOperator},
	{Disallowed, "An operator has taken a pattern off the allow-list.",
		[]string{"pattern"}, byOperator},
	{TokenRevoked, "An operator has revoked a token.",
		[]string{"token_id"}, byOperator},
	{TokenReleased, "An operator has given back a use of a token.",
		[]string{"token_id"}, append([]string{"node", "source"}, byOperator...)},
	{TokenUnfrozen, "An operator has said how many uses a token has left that a recovery had frozen.",
		[]string{"token_id"}, byOperator},
	{RecoveryEnded, "An operator has ended the recovery of the store.",
		[]string{"by"}, []string{"why"}},
	{SignerAdded, "An operator has added a signer of tokens.",
		[]string{"signer"}, byOperator},
	{SignerRemoved, "An operator has removed a signer: all of its tokens are worthless.",
		[]string{"signer"}, byOperator},
	{OperatorAdded, "An admin has added an operator, or changed a role or key.",
		[]string{"operator", "role"}, append([]string{"serial"}, byOperator...)},
	{OperatorRemoved, "An admin has removed an operator.",
		[]string{"operator"}, byOperator},
	{LoginRefused, "A login over HTTPS was refused. The operator is as claimed.",
		[]string{"cause", "source"}, []string{"operator", "left_out"}},
	{Paused, "An operator has paused enrollment, at the site or everywhere.",
		[]string{"by"}, []string{"why", "site", "renewals"}},
	{Resumed, "An operator has ended a pause; elapsed_ns is how long it stood.",
		[]string{"by"}, []string{"why", "site", "elapsed_ns"}},
	{BackupBegun, "A backup was asked for.",
		[]string{"by"}, []string{"why"}},
	{PolicyReloaded, "Another policy decides from now on.",
		[]string{"policy"}, byOperator},
	{PolicyRefused, "Policy files were not taken; the one before goes on deciding.",
		[]string{"policy", "cause"}, byOperator},
	{ShadowDiffers, "The shadow policy, digest, would decide otherwise than the policy did; the cause says what.",
		[]string{"node", "policy", "digest", "cause"}, nil},
	{AlarmRaised, "An alarm was raised: an operator must act. The node is the provisioner.",
		[]string{"node", "code", "cause", "attempt"}, nil},
	{AlarmCleared, "An alarm is over; the cause is the last one. The node is the provisioner.",
		[]string{"node", "code", "cause", "attempt"}, []string{"elapsed_ns"}},
	{ClockAccepted, "An operator took the provisioner's clock for right against the newest time on record.",
		[]string{"cause"}, byOperator},
	{WebhookTest, "An operator tries a webhook. It is sent to that only.",
		[]string{"by"}, nil},
	{ServerStartup, "A node's agent has begun to serve the fleet.",
		[]string{"identity"}, []string{"version", "boot", "address", "mode", "serial", "expires"}},
	{ServerAlive, "A node's agent is alive.",
		[]string{"identity"}, []string{"version", "boot", "address", "mode", "serial", "expires"}},
	{ServerProvisioned, "A node's agent has put a certificate and a configuration in force.",
		[]string{"identity"}, []string{"version", "boot", "address", "mode", "serial", "expires"}},
	{ServerShutdown, "A node's agent is about to end.",
		[]string{"identity"}, []string{"version", "boot", "address", "mode", "serial", "expires"}},
}

// MeaningOf returns the table's entry for t, or nil.
func MeaningOf(t Type) *Meaning {
	i := slices.IndexFunc(Types, func(m Meaning) bool { return m.Type == t })
	if i < 0 {
		return nil
	}
	return &Types[i]
}

// TypeBegins reports whether a type has the prefix.
func TypeBegins(beginning string) bool {
	return slices.ContainsFunc(Types, func(m Meaning) bool { return strings.HasPrefix(string(m.Type), beginning) })
}

// A Member is a member of events' data.
type Member struct {
	Name string
	Type string // of JSON Schema
	What string

	Example any // for the documentation
}

// Members are all members.
var Members = []Member{
	{"node", "string", "identity; in an attempt as claimed, at most 253 bytes", "web1.example.net"},
	{"code", "string", "why it was refused, the true code (see codes.md), or the alarm's", "denied"},
	{"cause", "string", "the same in words, for operators", "the policy gave no reason"},
	{"reason", "string", "on what ground the key has the identity: new, replay, continue, continuity, grant, renew, one_time_token", "new"},
	{"serial", "string", "of the certificate, lower-case hex", "5b1f0c9e6f0d4b0e8a41c3d2e7f60718"},
	{"digest", "string", "SHA-256 over certificate and configuration, hex", "9f2c0d6a…"},
	{"token_id", "string", "of the token, 32 hex digits", "0b52f4c7a9d84e5b9c1d3f6a7e8b9c0d"},
	{"signer", "string", "fingerprint of the key that signed the token", "c41e7b02…"},
	{"site", "string", "to which the token is bound, or that is paused", "ams1"},
	{"source", "string", "address that the request came from, as the broker says", "192.0.2.17"},
	{"sealed", "boolean", "the request came sealed", true},
	{"attempt", "string", "id of the attempt; the record that it wrote has the same", "V1StGXR8Z5jdHi6BmyT2aQ"},
	{"policy", "string", "digest of the policy that decided", "4be1a7f0…"},
	{"elapsed_ns", "integer", "how long it took, or the alarm stood, in nanoseconds", 1840000},
	{"left_out", "integer", "how many before this one have no event: attempts from anywhere, since one source makes too many; else those of this node, which does", 41},
	{"key_hash", "string", "SHA-256 of the public key that was decided about, hex", "3f6c0a52…"},
	{"pattern", "string", "the allow-list's entry", "web*.example.net"},
	{"operator", "string", "the operator who is added, removed or refused", "vera"},
	{"role", "string", "of the operator: viewer, operator, admin", "viewer"},
	{"verb", "string", "what the node is to do: reprovision, reconfigure, restart, shutdown", "restart"},
	{"command", "string", "id of the command; one for all nodes of a batch", "V1StGXR8Z5jdHi6BmyT2aQ"},
	{"by", "string", "the operator", "ada"},
	{"why", "string", "in the operator's words", "stolen"},
	{"renewals", "boolean", "renewals are paused, too", true},
	{"repeated", "boolean", "a retry got its answer again: nothing was written", true},
	{"identity", "string", "the node, as its session proves", "web1.example.net"},
	{"version", "string", "of the agent", "1.4.0"},
	{"boot", "string", "differs after each start of the agent", "q3ZpX0bT8mK1"},
	{"mode", "string", "the agent's mode", "normal"},
	{"address", "string", "of the node, as its broker sees it", "192.0.2.7"},
	{"expires", "string", "when the certificate ends, RFC 3339", "2026-12-22T10:00:00Z"},
}
