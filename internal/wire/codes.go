package wire

// A Code tells programs why a request was refused. Codes are never renamed or reused. Treat an unknown code as
// [CodeDenied].
type Code string

// [Codes] explains each code.
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

	// Replies to commands.
	CodeCommandProof      Code = "command_proof"
	CodeCommandStale      Code = "command_stale"
	CodeCommandImpossible Code = "command_impossible"
)

// Waits reports whether c means waiting for an operator or the policy, rather than a refusal.
func (c Code) Waits() bool { return c == CodeApprovalPending || c == CodeDeferred }

// A Meaning describes a [Code].
type Meaning struct {
	Code Code

	// Public is the message to the refused sender. It does not reveal which nodes exist.
	Public string

	// Remedy tells an operator what to do.
	Remedy string

	// SentAs replaces Code on the wire if Code would reveal something about the fleet. Empty means Code itself.
	// Operators see Code.
	SentAs Code

	// Retry reports whether the same request can succeed later without changes to node or token. Nodes retry in any
	// case, without Retry more slowly.
	Retry bool
}

// Codes lists all refusals in the order of the documentation.
var Codes = []Meaning{
	{Code: CodeBadRequest, Public: "the request is not one this provisioner understands",
		Remedy: "update the node's muster-server; if it is current, report the request id"},
	{Code: CodeTooLarge, Public: "the request is larger than the protocol allows",
		Remedy: "make the node's facts smaller (32 KiB at most)"},
	{Code: CodeUnsupportedVersion, Public: "the provisioner does not speak this version of the protocol",
		Remedy: "use a muster-server that speaks one of the versions listed in the reply"},
	{Code: CodeSealedUnsupported, Public: "the provisioner cannot open sealed requests",
		Remedy: "give the provisioner the seal key named in the token, or sign a token without one"},
	{Code: CodeSealedInvalid, Public: "the sealed request does not open, or is not of this connection",
		Remedy: "let the node ask again; if it persists, the token is sealed to another installation's key, or the node's requests are altered or replayed on the way", Retry: true},
	{Code: CodeSourceLimited, SentAs: CodeBusy, Public: "the provisioner is busy",
		Remedy: "too many forged or damaged tokens or sealed messages came from this address: find out which machine sends them; machines behind the same address wait meanwhile", Retry: true},

	{Code: CodeIdentityInvalid, Public: "the identity is not a lower-case RFC 1123 host name",
		Remedy: "set `identity` in server.conf, or the machine's host name, to its fully qualified name in lower case"},
	{Code: CodeIdentityReserved, Public: "the identity is reserved for brokers and provisioners",
		Remedy: "give the machine another name; names in token URLs, of brokers and of provisioners are never issued to nodes"},
	{Code: CodeIdentityTaken, SentAs: CodeApprovalPending, Public: "the machine waits for an operator",
		Remedy: "the identity belongs to another key: retire it, grant this machine a one-shot takeover, or give the machine back its old key", Retry: true},
	{Code: CodeIdentityRevoked, SentAs: CodeDenied, Public: "the policy does not admit this machine",
		Remedy: "the identity was revoked: retire it before it may enroll again"},
	{Code: CodeIdentityCloned, SentAs: CodeDenied, Public: "the policy does not admit this machine",
		Remedy: "two live machines use the key of this identity, and the policy refuses both: find the copy, then retire the identity so that one of them may enroll anew"},

	{Code: CodeTokenInvalid, Public: "the token is malformed or not signed by a trusted signer",
		Remedy: "sign a token with a key whose public half is in the provisioner's `tokens.signers`, and replace provisioning.jwt"},
	{Code: CodeTokenExpired, Public: "the token has expired",
		Remedy: "sign a new token and replace provisioning.jwt; check the node's clock if the token should still be valid"},
	{Code: CodeTokenNotYetValid, Public: "the token is not valid yet",
		Remedy: "wait, or sign a token with an earlier --not-before; check the provisioner's clock"},
	{Code: CodeTokenUnsupported, Public: "the token carries a limit that this provisioner cannot enforce",
		Remedy: "sign the token without the limit named in the provisioner's log, or update the provisioner"},
	{Code: CodeTokenIdentity, Public: "the token is not for this identity",
		Remedy: "sign a token whose --identity patterns cover the machine's name"},
	{Code: CodeTokenSite, Public: "the token is not for this site",
		Remedy: "use a token of this site, or one without --site"},
	{Code: CodeTokenRevoked, Public: "the token has been revoked",
		Remedy: "sign a new token and replace provisioning.jwt"},
	{Code: CodeTokenUsedUp, Public: "the token has no uses left",
		Remedy: "sign a token with more --uses; `muster token show` lists the machines that used this one, `muster token release` gives back a use that was claimed and never enrolled", Retry: true},
	{Code: CodeTokenFrozen, Public: "the token waits for an operator",
		Remedy: "the store may have lost uses of the token: sign a new one, or say with `muster token unfreeze` how many it has left", Retry: true},

	{Code: CodeCSRInvalid, Public: "the certificate request is malformed, unsigned or has a weak key",
		Remedy: "use P-256, P-384, Ed25519 or RSA of 2048 to 4096 bits; delete the node's staged key so that a new one is made"},
	{Code: CodeCSRIdentity, Public: "the certificate request is for another name",
		Remedy: "make the request's common name the machine's identity"},

	{Code: CodeDenied, Public: "the policy does not admit this machine",
		Remedy: "change the policy, the facts or the machine's name; `muster node explain` with its name shows the policy's reasons"},
	{Code: CodeDeferred, Public: "the policy asks the machine to come back later",
		Remedy: "nothing; if it takes too long, `muster node explain` with its name shows the policy's reasons", Retry: true},
	{Code: CodeApprovalPending, Public: "the machine waits for an operator",
		Remedy: "ask an operator to approve it: `muster node approve` with its name, or an allow-list entry for it", Retry: true},
	{Code: CodeRejected, SentAs: CodeDenied, Public: "the policy does not admit this machine",
		Remedy: "an operator rejected this machine's key: `muster node approve` or `muster node forget` its name with --fingerprint if that was wrong"},
	{Code: CodeShutdown, Public: "the policy asks the machine to stop its agent",
		Remedy: "the agent has ended; start it again once the policy would let it in"},
	{Code: CodePolicyFailed, Public: "the policy could not be evaluated",
		Remedy: "see the provisioner's log; the policy must define `allow` and its companions with the documented types", Retry: true},

	{Code: CodeHelperFailed, Public: "the configuration could not be made",
		Remedy: "see the provisioner's log for what the helper printed on stderr", Retry: true},
	{Code: CodeHelperTimeout, Public: "the configuration was not made in time",
		Remedy: "make the helper faster or raise `configuration.timeout`", Retry: true},
	{Code: CodeConfigurationFailed, Public: "the configuration could not be made",
		Remedy: "the policy, template or helper gave a key or value that server.conf cannot hold, or none at all; see the provisioner's log", Retry: true},
	{Code: CodeCertificateFailed, Public: "the certificate could not be issued",
		Remedy: "see the provisioner's log: the names or lifetime that policy asked for, or the authority itself", Retry: true},

	{Code: CodePaused, Public: "enrollment is paused",
		Remedy: "nothing on the machine: it comes back by itself once an operator has run `muster resume`; `muster status` says which operator has paused it and why", Retry: true},
	{Code: CodeQuotaExceeded, Public: "too many new machines",
		Remedy: "wait, or raise `quotas` in provisioner.yaml", Retry: true},
	{Code: CodeBusy, Public: "the provisioner is busy",
		Remedy: "nothing; the node comes back when it was told to", Retry: true},
	{Code: CodeUnavailable, Public: "the provisioner cannot decide now",
		Remedy: "see the provisioner's log: its store, disk or clock", Retry: true},
	{Code: CodeClockBehind, SentAs: CodeUnavailable, Public: "the provisioner cannot decide now",
		Remedy: "the provisioner's clock is behind the newest time on record: set it right; if it was the record that was ahead, run `muster provisioner accept-clock`", Retry: true},
	{Code: CodeAuthorityExpired, SentAs: CodeUnavailable, Public: "the provisioner cannot decide now",
		Remedy: "the certificate authority has expired: roll it over with `muster ca roll`", Retry: true},
	{Code: CodeRevocationsUnknown, SentAs: CodeUnavailable, Public: "the provisioner cannot decide now",
		Remedy: "the provisioner has not seen the newest revocations, and admits no node until it has: see its log for what is wrong with the store", Retry: true},
	{Code: CodeStoreUnavailable, SentAs: CodeUnavailable, Public: "the provisioner cannot decide now",
		Remedy: "the store does not answer: see the provisioner's log for disk and broker; it goes on by itself when they are mended", Retry: true},
	{Code: CodeStorageLow, SentAs: CodeUnavailable, Public: "the provisioner cannot decide now",
		Remedy: "the store's disk is nearly full, or the store has taken nearly all it may: free space; renewals and revocations go on meanwhile", Retry: true},

	{Code: CodeNotIssued, Public: "the confirmation is for something that was not issued",
		Remedy: "let the node enroll again"},
	{Code: CodeAppliedSignature, Public: "the confirmation is not signed by the certificate's key",
		Remedy: "let the node enroll again; if it persists, confirmations are forged"},
	{Code: CodeOfferUnusable, Public: "the node cannot use what it was offered",
		Remedy: "correct the policy, template or helper that gives it out, or mend what the cause names on the machine; it asks again by itself, or for `muster node reconfigure`"},
	{Code: CodeRenewSession, Public: "the renewal does not come from the certificate's own connection",
		Remedy: "let the node connect again with its certificate; if that is no longer live, it enrolls anew by itself"},

	{Code: CodeCommandProof, Public: "the command does not prove the shared secret of this node's token",
		Remedy: "the node's provisioning.jwt is not there, or not the one it enrolled with: put it there, or name the one that is there with --token-file"},
	{Code: CodeCommandStale, Public: "the command answers no question of this node, or comes too late",
		Remedy: "send it again; if it persists, commands are replayed", Retry: true},
	{Code: CodeCommandImpossible, Public: "the node cannot do this as it is",
		Remedy: "see the message, and the node's log"},
}

// MeaningOf returns the entry for c; for an unknown code, that of [CodeDenied].
func MeaningOf(c Code) Meaning {
	for _, m := range Codes {
		if m.Code == c {
			return m
		}
	}
	return MeaningOf(CodeDenied)
}

// SentAs returns the code that goes over the wire.
func (c Code) SentAs() Code {
	if m := MeaningOf(c); m.SentAs != "" {
		return m.SentAs
	}
	return c
}
