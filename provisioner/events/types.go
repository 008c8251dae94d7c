package events

import (
	"slices"
	"strings"
)

// A Meaning documents a [Type].
type Meaning struct {
	Type Type
	What string // one sentence

	// Every event of the type has the members Always, and may have the members Sometimes.
	Always, Sometimes []string
}

// Members of events that tokens, operators or agents cause.
var (
	fromToken  = []string{"token_id", "signer", "site", "source", "policy"}
	byOperator = []string{"by", "why"}
	fromAgent  = []string{"version", "boot", "address", "mode", "serial", "expires", "fault"}
)

// Types is the table of all events. Types and members are never renamed.
var Types = []Meaning{
	{Enrolled, "A node has enrolled: its certificate is on record. If repeated is set, a retry got an earlier answer " +
		"again. The first five retries of a node are reported, then one every ten minutes; left_out counts the rest.",
		[]string{"node", "reason", "serial", "digest", "attempt"},
		slices.Concat(fromToken, []string{"sealed", "elapsed_ns", "repeated", "left_out"})},
	{Renewed, "A node has renewed: a certificate that replaces its live one is on record. If repeated is set, a " +
		"retry got an earlier answer again, with the limits of enrolled.",
		[]string{"node", "reason", "serial", "digest", "attempt"},
		slices.Concat(fromToken, []string{"elapsed_ns", "repeated", "left_out"})},
	{Provisioned, "A node has confirmed that certificate and configuration are on its disk. If repeated is set, it " +
		"had confirmed before. The first 20 of a node are reported, then one every half minute; left_out counts the " +
		"rest.",
		[]string{"node", "serial", "digest", "attempt"},
		slices.Concat(fromToken, []string{"reason", "sealed", "repeated", "left_out"})},
	{Refused, "A request with a valid token or certificate was refused. The node is the name in the request, which " +
		"need not be the sender: a token may be valid for many names. A pending key is reported every ten minutes; " +
		"`muster node pending` counts its requests. The first 100 refusals of an address are reported, then two a " +
		"second; of all addresses together five times as many. Refused renewals and offer_unusable are counted by " +
		"node: 20, then one every half minute. left_out counts the rest. Answers of an overloaded provisioner are " +
		"not reported; metrics count all. With code offer_unusable the node cannot use its certificate or " +
		"configuration: the cause is the node's text, reported once an hour.",
		[]string{"code"}, slices.Concat([]string{"node", "cause", "reason", "attempt", "left_out"}, fromToken)},
	{Attempt, "A connection, or a request without valid credentials, was refused. The node is only claimed. If " +
		"serial is set, the node showed its own certificate to a broker of the fleet and was not admitted.",
		[]string{"code"}, slices.Concat([]string{"node", "cause", "reason", "serial", "attempt", "left_out"},
			fromToken)},
	{Revoked, "An operator has revoked a node, and the node's record shows it.",
		[]string{"node", "attempt"}, byOperator},
	{Retired, "An operator has freed a node's name for any key.",
		[]string{"node"}, append([]string{"attempt"}, byOperator...)},
	{Granted, "An operator has allowed another key to take a name, once.",
		[]string{"node"}, byOperator},
	{Approved, "An operator, or the approval command, has approved a pending key.",
		[]string{"node", "key_hash"}, byOperator},
	{Rejected, "An operator has rejected a pending key.",
		[]string{"node", "key_hash"}, byOperator},
	{Forgotten, "An operator has removed a pending key and the verdict about it.",
		[]string{"node", "key_hash"}, byOperator},
	{Commanded, "An operator has sent a command to a node. If cause is set, the node may not have received it.",
		[]string{"node", "verb", "command"}, append([]string{"cause", "repeated"}, byOperator...)},
	{Cloned, "Two live machines use one key.",
		[]string{"node", "cause"}, []string{"serial", "attempt"}},
	{Faulty, "A connected node reports what keeps it from renewing its certificate as it should: facts, files, disk " +
		"or clock. If that is not corrected, the node leaves the fleet when its certificate ends.",
		[]string{"node", "cause", "attempt"}, nil},
	{FaultEnded, "A node reports that nothing keeps it from renewing any more.",
		[]string{"node", "attempt"}, nil},
	{RunFailed, "A Puppet agent's run has failed; the cause is the first error in its report. The first 20 of a node " +
		"are reported, then one every half minute; left_out counts the rest.",
		[]string{"node", "cause"}, []string{"left_out"}},
	{RunRecovered, "A Puppet agent's run has not failed, after one that had.",
		[]string{"node"}, []string{"left_out"}},
	{Allowed, "An operator has put a pattern of names on the allow-list.",
		[]string{"pattern"}, byOperator},
	{Disallowed, "An operator has taken a pattern off the allow-list.",
		[]string{"pattern"}, byOperator},
	{CertificateIssued, "A node got a service certificate.",
		[]string{"node", "name", "serial", "policy"}, []string{"source", "attempt", "elapsed_ns"}},
	{CertificateRenewed, "A node got the next certificate of a service certificate that it has.",
		[]string{"node", "name", "serial", "policy"}, []string{"source", "attempt", "elapsed_ns"}},
	{CertificateFailed, "A node got no service certificate. The first 20 of a node are reported, then one every " +
		"half minute; left_out counts the rest.",
		[]string{"node", "name", "code"}, []string{"cause", "policy", "source", "left_out"}},
	{CertificateRevoked, "Service certificates of a node were revoked: by an operator, by the node, or with the " +
		"node. Without name: all that the node had.",
		[]string{"node"}, append([]string{"name"}, byOperator...)},
	{CertificateApproved, "An operator has approved a request for a service certificate.",
		[]string{"node", "name", "key_hash"}, byOperator},
	{CertificateRejected, "An operator has rejected a request for a service certificate.",
		[]string{"node", "name", "key_hash"}, byOperator},
	{TokenRevoked, "An operator has revoked a token.",
		[]string{"token_id"}, byOperator},
	{TokenReleased, "An operator has given back a use of a token.",
		[]string{"token_id"}, append([]string{"node", "source"}, byOperator...)},
	{TokenUnfrozen, "An operator has set the remaining uses of a token that a recovery froze.",
		[]string{"token_id"}, byOperator},
	{RecoveryEnded, "An operator has ended the recovery of the store.",
		[]string{"by"}, []string{"why"}},
	{SignerAdded, "An operator has added a signer of tokens.",
		[]string{"signer"}, byOperator},
	{SignerRemoved, "An operator has removed a signer: its tokens are no longer valid.",
		[]string{"signer"}, byOperator},
	{OperatorAdded, "An admin has added an operator, or changed a role or key.",
		[]string{"operator", "role"}, append([]string{"serial"}, byOperator...)},
	{OperatorRemoved, "An admin has removed an operator.",
		[]string{"operator"}, byOperator},
	{LoginRefused, "A login over HTTPS was refused. The operator's name is only claimed.",
		[]string{"cause", "source"}, []string{"operator", "left_out"}},
	{SessionBegun, "An operator has signed in by OpenID Connect, in a browser or for commands.",
		[]string{"operator", "role", "source"}, nil},
	{SessionEnded, "A session was ended before its time, by its operator or an admin.",
		[]string{"operator"}, byOperator},
	{Paused, "An operator has paused enrollment, at the site or everywhere.",
		[]string{"by"}, []string{"why", "site", "renewals"}},
	{Resumed, "An operator has ended a pause; elapsed_ns is how long it lasted.",
		[]string{"by"}, []string{"why", "site", "elapsed_ns"}},
	{BackupBegun, "An operator has begun a backup.",
		[]string{"by"}, []string{"why"}},
	{PolicyReloaded, "Another policy is in use.",
		[]string{"policy"}, byOperator},
	{PolicyRefused, "Policy files were refused; the previous policy stays in use.",
		[]string{"policy", "cause"}, byOperator},
	{ShadowDiffers, "The shadow policy (digest) would decide differently; the cause is its decision.",
		[]string{"node", "policy", "digest", "cause"}, nil},
	{AlarmRaised, "An alarm was raised: an operator must act. The node is the provisioner.",
		[]string{"node", "code", "cause", "attempt"}, nil},
	{AlarmCleared, "An alarm has ended; the cause is its last cause. The node is the provisioner.",
		[]string{"node", "code", "cause", "attempt"}, []string{"elapsed_ns"}},
	{ClockAccepted, "An operator has set the newest time on record to the provisioner's clock.",
		[]string{"cause"}, byOperator},
	{WebhookTest, "An operator tests a webhook. Only that webhook gets the event.",
		[]string{"by"}, nil},
	{ServerStartup, "A node's agent has started.",
		[]string{"identity"}, fromAgent},
	{ServerAlive, "A node's agent is alive.",
		[]string{"identity"}, fromAgent},
	{ServerProvisioned, "A node's agent uses a new certificate and configuration.",
		[]string{"identity"}, fromAgent},
	{ServerShutdown, "A node's agent is stopping.",
		[]string{"identity"}, fromAgent},
}

// MeaningOf returns the table's entry for t, or nil.
func MeaningOf(t Type) *Meaning {
	i := slices.IndexFunc(Types, func(m Meaning) bool { return m.Type == t })
	if i < 0 {
		return nil
	}
	return &Types[i]
}

// Beginning returns the types with the prefix.
func Beginning(prefix string) (all []Type) {
	for _, m := range Types {
		if strings.HasPrefix(string(m.Type), prefix) {
			all = append(all, m.Type)
		}
	}
	return all
}

// A Member is a member of events' data.
type Member struct {
	Name string
	Type string // of JSON Schema
	What string

	Example any // for the documentation
}

// Members documents all members of events' data.
var Members = []Member{
	{"node", "string", "identity; in an attempt only claimed, at most 253 bytes", "web1.example.net"},
	{"code", "string", "internal code of the refusal (see codes.md), or the alarm's code", "denied"},
	{"cause", "string", "the cause in words, for operators", "the policy gave no reason"},
	{"reason", "string",
		"why the key may have the identity: new, replay, continue, continuity, grant, renew, one_time_token", "new"},
	{"name", "string", "of the service certificate", "haproxy"},
	{"serial", "string", "serial of the certificate, lower-case hex", "5b1f0c9e6f0d4b0e8a41c3d2e7f60718"},
	{"digest", "string", "SHA-256 over certificate and configuration, hex", "9f2c0d6a…"},
	{"token_id", "string", "of the token, 32 hex digits", "0b52f4c7a9d84e5b9c1d3f6a7e8b9c0d"},
	{"signer", "string", "fingerprint of the key that signed the token", "c41e7b02…"},
	{"site", "string", "site of the token, or the paused site", "ams1"},
	{"source", "string", "address of the request, as the broker sees it", "192.0.2.17"},
	{"sealed", "boolean", "the request was sealed", true},
	{"attempt", "string", "id of the attempt, also in the record that the attempt wrote", "V1StGXR8Z5jdHi6BmyT2aQ"},
	{"policy", "string", "digest of the policy that decided", "4be1a7f0…"},
	{"elapsed_ns", "integer", "duration of the request or the alarm, in nanoseconds", 1840000},
	{"left_out", "integer",
		"number of unreported events before this one: attempts of all sources, else events of this node",
		41},
	{"key_hash", "string", "SHA-256 of the public key in question, hex", "3f6c0a52…"},
	{"pattern", "string", "the allow-list's entry", "web*.example.net"},
	{"operator", "string", "the operator that is added, removed or refused", "vera"},
	{"role", "string", "of the operator: viewer, auditor, operator, admin, foreman", "viewer"},
	{"verb", "string", "what the node must do: reprovision, reconfigure, restart, shutdown", "restart"},
	{"command", "string", "id of the command; one for all nodes of a batch", "V1StGXR8Z5jdHi6BmyT2aQ"},
	{"by", "string", "the operator", "ada"},
	{"why", "string", "the operator's reason", "stolen"},
	{"renewals", "boolean", "renewals are paused, too", true},
	{"repeated", "boolean", "a retry got the same answer; nothing was written", true},
	{"identity", "string", "the node, proven by its session", "web1.example.net"},
	{"version", "string", "of the agent", "1.4.0"},
	{"boot", "string", "changes at each start of the agent", "q3ZpX0bT8mK1"},
	{"mode", "string", "the agent's mode", "normal"},
	{"address", "string", "of the node, as its broker sees it", "192.0.2.7"},
	{"fault", "string", "what keeps the node from renewing; absent: nothing",
		"facts: /etc/facts.json: 140000 bytes, limit 131072"},
	{"expires", "string", "when the certificate ends, RFC 3339", "2026-12-22T10:00:00Z"},
}
