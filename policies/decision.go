package policies

import (
	"errors"
	"fmt"
	"time"

	"muster/internal/wire"
)

// A Verdict is the result of a decision.
type Verdict string

// The verdicts, highest precedence first: a reason to deny overrides everything else, and everything else overrides
// `allow`.
const (
	VerdictDeny     Verdict = "deny"
	VerdictShutdown Verdict = "shutdown" // stop the node's agent
	VerdictDefer    Verdict = "defer"    // the node retries later
	VerdictApproval Verdict = "approval" // an operator decides
	VerdictAllow    Verdict = "allow"
)

// A Decision is what a policy says about a request; [Decision.Verdict] is its result.
type Decision struct {
	Allow    bool
	Defer    bool
	Approval bool
	Shutdown bool

	// Deny holds the reasons to deny: sorted, unique, at most [MaxReasons], each cut to [MaxReasonBytes]. Nil: none.
	Deny []string

	// Reasons explain defer, approval and shutdown, in the same form.
	Reasons []string

	Certificate Certificate

	// Configuration is the node's server.conf. If nil, a template or a helper makes it.
	Configuration map[string]string

	// Certificates are the service certificates that the node is to have, by name. Nil: it keeps those of before.
	Certificates map[string]wire.Specification

	// Digest is the policy's digest, see [Engine.Digest].
	Digest string
}

// A Certificate is what a policy requests for a certificate; the authority may refuse it.
type Certificate struct {
	TTL        time.Duration // in whole seconds; 0: the authority's default
	DNSNames   []string      // besides the identity, sorted
	ServerAuth bool          // also valid for servers

	IPAddresses []string // sorted

	// Only of service certificates, which are for servers unless server_auth is false.
	URIs       []string // sorted
	ClientAuth bool     // also valid for clients
	Shared     []string // names that service certificates of several nodes may have

	Extensions map[string]string // of Puppet, by name such as "pp_role"
}

// Check returns every name and address that no installation issues, or nil.
func (c *Certificate) Check() error {
	var errs []error
	for _, name := range c.DNSNames {
		id, err := wire.ParseIdentity(name)
		if err == nil {
			err = wire.CheckReserved(id)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("dns_names: %w", err))
		}
	}
	for _, text := range c.IPAddresses {
		if _, err := wire.ParseNodeAddress(text); err != nil {
			errs = append(errs, fmt.Errorf("ip_addresses: %w", err))
		}
	}
	for _, text := range c.URIs {
		if !wire.ValidServiceURI(text) {
			errs = append(errs, fmt.Errorf("uris: %.80q, want one such as https://web.example.net/", text))
		}
	}
	return errors.Join(errs...)
}

// Reasons go into records, events and the log, and may quote the node. These limits keep them smaller than the facts.
const (
	MaxReasons     = 32
	MaxReasonBytes = 512
)

// Verdict returns the result. The zero Decision denies.
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

// Why returns the reasons for the verdict. A denial always has one.
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
