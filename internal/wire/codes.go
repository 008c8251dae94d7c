package wire

import "cmp"

// A Code says why a request was refused. Treat an unknown one as [CodeDenied].
type Code string

// Refusal codes; see [Codes].
const (
	CodeBadRequest         Code = "bad_request"
	CodeTooLarge           Code = "too_large"
	CodeUnsupportedVersion Code = "unsupported_version"
	CodeSealedUnsupported  Code = "sealed_unsupported"
	CodeSealedInvalid      Code = "sealed_invalid"
	CodeSourceLimited      Code = "source_limited"

	CodeIdentityInvalid  Code = "identity_invalid"
	CodeIdentityReserved Code = "identity_reserved"
	CodeIdentityTaken    Code = "identity_taken"
	CodeIdentityRevoked  Code = "identity_revoked"
	CodeIdentityCloned   Code = "identity_cloned"

	CodeTokenInvalid     Code = "token_invalid"
	CodeTokenExpired     Code = "token_expired"
	CodeTokenNotYetValid Code = "token_not_yet_valid"
	CodeTokenUnsupported Code = "token_unsupported"
	CodeTokenIdentity    Code = "token_identity"
	CodeTokenSite        Code = "token_site"
	CodeTokenRevoked     Code = "token_revoked"
	CodeTokenUsedUp      Code = "token_used_up"
	CodeTokenFrozen      Code = "token_frozen"

	CodeCSRInvalid  Code = "csr_invalid"
	CodeCSRIdentity Code = "csr_identity"
	CodeNameTaken   Code = "name_taken"

	CodeDenied          Code = "denied"
	CodeDeferred        Code = "deferred"
	CodeApprovalPending Code = "approval_pending"
	CodeRejected        Code = "rejected"
	CodeShutdown        Code = "shutdown"
	CodePolicyFailed    Code = "policy_failed"

	CodeHelperFailed        Code = "helper_failed"
	CodeHelperTimeout       Code = "helper_timeout"
	CodeConfigurationFailed Code = "configuration_failed"
	CodeCertificateFailed   Code = "certificate_failed"

	CodePaused        Code = "enrollment_paused"
	CodeQuotaExceeded Code = "quota_exceeded"
	CodeBusy          Code = "busy"
	CodeUnavailable   Code = "unavailable"

	CodeClockBehind        Code = "clock_behind"
	CodeAuthorityExpired   Code = "authority_expired"
	CodeRevocationsUnknown Code = "revocations_unknown"
	CodeStoreUnavailable   Code = "store_unavailable"
	CodeStorageLow         Code = "storage_low"

	CodeNotIssued        Code = "not_issued"
	CodeAppliedSignature Code = "applied_signature"
	CodeOfferUnusable    Code = "offer_unusable"
	CodeRenewSession     Code = "renew_session"

	CodeNodeSilent  Code = "node_silent"
	CodeNodeRefused Code = "node_refused"

	CodeCommandProof      Code = "command_proof"
	CodeCommandStale      Code = "command_stale"
	CodeCommandImpossible Code = "command_impossible"
)

// Waits reports whether the node waits for a decision and is not refused.
func (c Code) Waits() bool { return c == CodeApprovalPending || c == CodeDeferred }

// A Meaning describes a [Code].
type Meaning struct {
	// Public is the message to the node. It must not reveal which nodes exist. It is that of SentAs, if set.
	Public string

	// Remedy tells an operator what to do.
	Remedy string

	// SentAs is sent instead of a Code that would reveal something about the fleet. Empty means Code itself.
	SentAs Code

	// Retry reports whether the same request can succeed later. Nodes retry without it too, but more slowly.
	Retry bool
}

// Codes has all refusals. For their messages see [MeaningOf].
var Codes = map[Code]Meaning{
	CodeBadRequest: {
		Public: "the provisioner does not understand the request",
		Remedy: "update the node's muster-server; if it is current, report the request id",
	},
	CodeTooLarge: {
		Public: "the request is larger than the protocol allows",
		Remedy: "reduce the node's facts to at most 128 KiB",
	},
	CodeUnsupportedVersion: {
		Public: "the provisioner does not support this protocol version",
		Remedy: "use a muster-server that supports a version listed in the reply",
	},
	CodeSealedUnsupported: {
		Public: "the provisioner cannot open sealed requests",
		Remedy: "configure the seal key that the token names on the provisioner, or sign a token without one",
	},
	CodeSealedInvalid: {
		Public: "the sealed request cannot be opened, or belongs to another connection",
		Remedy: "wait for the node's next attempt; if the error persists, the token is sealed to another " +
			"installation's key, or requests are altered or replayed on the network",
		Retry: true,
	},
	CodeSourceLimited: {
		SentAs: CodeBusy,
		Remedy: "too many forged or damaged tokens or messages came from this address: find the machine that " +
			"sends them; nodes behind the same address must wait meanwhile",
		Retry: true,
	},

	CodeIdentityInvalid: {
		Public: "the identity is not a lower-case RFC 1123 host name",
		Remedy: "set `identity` in server.conf, or the machine's host name, to its fully qualified name in lower " +
			"case",
	},
	CodeIdentityReserved: {
		Public: "the identity is reserved",
		Remedy: "rename the node; a node must not have the name of a broker, a provisioner or the API, one in a " +
			"token's URLs, or one such as localhost or puppet",
	},
	CodeIdentityTaken: {
		SentAs: CodeApprovalPending,
		Remedy: "the identity belongs to another key. If the machine was reinstalled, compare its key, then give it " +
			"the name with `muster node grant` and --fingerprint; else restore the old key or rename the machine",
		Retry: true,
	},
	CodeIdentityRevoked: {
		SentAs: CodeDenied,
		Remedy: "the identity is revoked. If the machine may come back, `muster node retire` frees the name for the " +
			"next machine that asks, so make sure first that only the right one asks",
	},
	CodeIdentityCloned: {
		SentAs: CodeDenied,
		Remedy: "two running machines use this identity's key, and the policy refuses both: find the copy by the " +
			"addresses in the node's history, give it another name and key, and grant the name to a new key of the " +
			"right machine",
	},

	CodeTokenInvalid: {
		Public: "the token is malformed or not signed by a trusted signer",
		Remedy: "add the token's signer to the provisioner's `tokens.signers`, or sign a new token with the " +
			"key of a listed signer and replace provisioning.jwt",
	},
	CodeTokenExpired: {
		Public: "the token has expired",
		Remedy: "sign a new token and replace provisioning.jwt; if the token should still be valid, check the " +
			"clocks",
	},
	CodeTokenNotYetValid: {
		Public: "the token is not valid yet",
		Remedy: "wait, or sign a token with an earlier --not-before; check the provisioner's clock",
	},
	CodeTokenUnsupported: {
		Public: "the token has a limit that this provisioner cannot enforce",
		Remedy: "sign the token without the limit that the provisioner's log names, or update the provisioner",
	},
	CodeTokenIdentity: {
		Public: "the token is not for this identity",
		Remedy: "sign a token whose --identity patterns cover the node's name",
	},
	CodeTokenSite: {
		Public: "the token is not for this site",
		Remedy: "use a token for this site, or one without --site",
	},
	CodeTokenRevoked: {
		Public: "the token is revoked",
		Remedy: "sign a new token and replace provisioning.jwt",
	},
	CodeTokenUsedUp: {
		Public: "the token has no uses left",
		Remedy: "sign a token with more --uses; `muster token show` lists the nodes that used this one, and " +
			"`muster token release` returns a use that was claimed but never enrolled",
		Retry: true,
	},
	CodeTokenFrozen: {
		Public: "the token is frozen until an operator releases it",
		Remedy: "uses of the token may be lost from the store: sign a new token, or set the remaining uses with " +
			"`muster token unfreeze`",
		Retry: true,
	},

	CodeCSRInvalid: {
		Public: "the certificate request is malformed, unsigned or has a weak key",
		Remedy: "use a P-256, P-384 or Ed25519 key, or RSA of 2048 to 4096 bits; delete the node's staged key to " +
			"generate a new one",
	},
	CodeCSRIdentity: {
		Public: "the certificate request is for another name",
		Remedy: "set the request's common name to the node's identity",
	},
	CodeNameTaken: {
		SentAs: CodeDenied,
		Remedy: "a name of the service certificate is another node's, or below it: use another name",
	},

	CodeDenied: {
		Public: "the policy does not admit this node",
		Remedy: "change the policy, the facts or the node's name, so that the policy's reasons no longer hold",
	},
	CodeDeferred: {
		Public: "the policy tells the node to retry later",
		Remedy: "no action: the policy decides again at each request, and its reasons are kept with the pending key",
		Retry:  true,
	},
	CodeApprovalPending: {
		Public: "the node waits for an operator's approval",
		Remedy: "compare the pending key with the node's log, then `muster node approve` it with --fingerprint",
		Retry:  true,
	},
	CodeRejected: {
		SentAs: CodeDenied,
		Remedy: "an operator rejected this key: if that was wrong, use `muster node approve` or `muster node " +
			"forget` with the name and --fingerprint",
	},
	CodeShutdown: {
		Public: "the policy tells the node to stop its agent",
		Remedy: "the agent has stopped; start it again once the policy admits the node",
	},
	CodePolicyFailed: {
		Public: "the policy could not be evaluated",
		Remedy: "see the provisioner's log; the policy must define `allow` and its other results with the " +
			"documented types",
		Retry: true,
	},

	CodeHelperFailed: {
		Public: "the configuration could not be created",
		Remedy: "see the provisioner's log for the helper's output on stderr",
		Retry:  true,
	},
	CodeHelperTimeout: {
		Public: "the configuration was not created in time",
		Remedy: "make the helper faster or raise `configuration.timeout`",
		Retry:  true,
	},
	CodeConfigurationFailed: {
		Public: "the configuration could not be created",
		Remedy: "policy, template or helper returned no settings, or a key or value that server.conf cannot hold, " +
			"or the template needs a fact that the node lacks; see the provisioner's log",
		Retry: true,
	},
	CodeCertificateFailed: {
		Public: "the certificate could not be issued",
		Remedy: "see the provisioner's log: the policy's names or lifetime are not allowed, or the authority " +
			"failed",
		Retry: true,
	},

	CodePaused: {
		Public: "enrollment is paused",
		Remedy: "no action on the node: it retries until an operator runs `muster resume`; `muster status` shows " +
			"the operator's name and reason for the pause",
		Retry: true,
	},
	CodeQuotaExceeded: {
		Public: "too many new nodes",
		Remedy: "wait, or raise `quotas` in provisioner.yaml",
		Retry:  true,
	},
	CodeBusy: {
		Public: "the provisioner is busy",
		Remedy: "no action: the node retries",
		Retry:  true,
	},
	CodeUnavailable: {
		Public: "the provisioner cannot decide now",
		Remedy: "see the provisioner's log for errors of its store, disk or clock",
		Retry:  true,
	},
	CodeClockBehind: {
		SentAs: CodeUnavailable,
		Remedy: "the provisioner's clock is behind the newest recorded time: correct the clock; if the recorded " +
			"time is wrong, run `muster provisioner accept-clock`",
		Retry: true,
	},
	CodeAuthorityExpired: {
		SentAs: CodeUnavailable,
		Remedy: "the certificate authority has expired: replace it with `muster ca roll`",
		Retry:  true,
	},
	CodeRevocationsUnknown: {
		SentAs: CodeUnavailable,
		Remedy: "the provisioner has not read the newest revocations and admits no node until then: see its log " +
			"for the store's error",
		Retry: true,
	},
	CodeStoreUnavailable: {
		SentAs: CodeUnavailable,
		Remedy: "the store does not answer: see the provisioner's log for its disk and broker; enrollment resumes " +
			"when they work again",
		Retry: true,
	},
	CodeStorageLow: {
		SentAs: CodeUnavailable,
		Remedy: "the store's disk or its size limit is nearly full: free space; renewals and revocations still " +
			"work",
		Retry: true,
	},

	CodeNotIssued: {
		Public: "the confirmation is for a certificate or configuration that was not issued",
		Remedy: "wait: the node enrolls again by itself, if its token is valid and its key still has the name",
	},
	CodeAppliedSignature: {
		Public: "the confirmation is not signed by the certificate's key",
		Remedy: "wait: the node enrolls again by itself; if the error persists, confirmations are forged",
	},
	CodeOfferUnusable: {
		Public: "the node cannot use the certificate or configuration that it was given",
		Remedy: "if the cause names the authority that the token pins, sign a new token with this installation's " +
			"--ca; if it names the configuration, correct the policy, template or helper; else solve it on the " +
			"machine; the node retries by itself or after `muster node reconfigure`",
	},
	CodeRenewSession: {
		Public: "the renewal came over a connection that does not use this certificate",
		Remedy: "reconnect the node with its certificate; if the certificate is no longer valid, the node enrolls " +
			"again by itself",
	},

	CodeNodeSilent: {
		Public: "the server does not answer",
		Remedy: "look at the Choria server's log: it drops an answer larger than 1 MiB, for example with many facts, " +
			"and requests for another protocol version than its token's",
		Retry: true,
	},
	CodeNodeRefused: {
		Public: "the server refused an action, or its answer cannot be used",
		Remedy: "the cause has the Choria server's own words; if it cannot obtain the lock, another provisioner " +
			"asked it before: two minutes later it answers again",
		Retry: true,
	},
	CodeCommandProof: {
		Public: "the command does not prove knowledge of the token's shared secret",
		Remedy: "the node's provisioning.jwt is missing or not the one it enrolled with: restore it, or name the " +
			"present one with --token-file",
	},
	CodeCommandStale: {
		Public: "the command has no current nonce of this node",
		Remedy: "send the command again; if the error persists, commands are replayed",
		Retry:  true,
	},
	CodeCommandImpossible: {
		Public: "the node cannot execute this command now",
		Remedy: "see the message and the node's log",
	},
}

// MeaningOf returns the entry for c, or that of [CodeDenied] if c is unknown.
func MeaningOf(c Code) Meaning {
	m, known := Codes[c]
	if !known {
		m = Codes[CodeDenied]
	}
	if m.SentAs != "" {
		m.Public = Codes[m.SentAs].Public
	}
	return m
}

// SentAs returns the code that the node gets instead of c.
func (c Code) SentAs() Code {
	m, known := Codes[c]
	if !known {
		return CodeDenied
	}
	return cmp.Or(m.SentAs, c)
}
