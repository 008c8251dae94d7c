package policies

import "time"

// A Verdict is what a decision comes to.
type Verdict string

// The verdicts, in the order in which they take precedence: reasons to deny
// beat everything, and `allow` counts only if nothing speaks against it.
const (
	VerdictDeny     Verdict = "deny"
	VerdictShutdown Verdict = "shutdown" // the node's agent is to end
	VerdictDefer    Verdict = "defer"    // the node is to come back later
	VerdictApproval Verdict = "approval" // a person decides
	VerdictAllow    Verdict = "allow"
)

// A Decision is what a policy says about one request. [Decision.Verdict] is
// the answer; the flags are what the policy gave, for the record.
type Decision struct {
	Allow    bool
	Defer    bool
	Approval bool
	Shutdown bool

	// Deny holds the reasons to deny, sorted, without duplicates; nil if none.
	// At most [MaxReasons], each cut to [MaxReasonBytes].
	Deny []string

	// Reasons explain defer, approval and shutdown to people, in the same form.
	Reasons []string

	// Certificate is what the policy wants of the certificate.
	Certificate Certificate

	// Configuration is the node's server.conf. Nil if the policy gave none, which
	// leaves it to a template or a helper; empty if it gave an empty one.
	Configuration map[string]string

	// Digest is of the policy that decided, see [Engine.Digest].
	Digest string
}

// A Certificate is what a policy wants of a certificate. Whether it can be had
// is for the authority to say.
type Certificate struct {
	TTL        time.Duration // 0 leaves it to the authority; whole seconds
	DNSNames   []string      // besides the identity, sorted; nil if none
	ServerAuth bool          // also good for servers
}

// Bounds on reasons. A policy may quote what the node sent, and reasons go on
// record, into events and into the log: chosen so that 32 of them stay below
// the size of the facts that they may quote.
const (
	MaxReasons     = 32
	MaxReasonBytes = 512
)

// Verdict returns what d comes to. The zero Decision denies.
func (d *Decision) Verdict() Verdict {
	switch {
	case len(d.Deny) > 0:
		return VerdictDeny
	case d.Shutdown:
		return VerdictShutdown
	case d.Defer:
		return VerdictDefer
	case d.Approval:
		return VerdictApproval
	case d.Allow:
		return VerdictAllow
	default:
		return VerdictDeny
	}
}

// Why returns the reasons for the verdict, for people: those to deny, or those
// given beside another verdict. A denial always has one; others may have none.
func (d *Decision) Why() []string {
	switch {
	case len(d.Deny) > 0:
		return d.Deny
	case d.Verdict() == VerdictDeny:
		return []string{"no rule allows it"}
	default:
		return d.Reasons
	}
}
