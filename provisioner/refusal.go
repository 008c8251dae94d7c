package provisioner

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"muster/provisioner/waiting"

	"muster/internal/wire"
	"muster/provisioner/events"
)

// A Refusal is the provisioner's answer to a request that it does not grant.
// Every error returned by [Provisioner.Enroll], [Provisioner.Renew] and [Provisioner.Applied] is a
// *Refusal, so a transport need only choose how to spell it.
//
// Err is written for operators: it goes to the log and the events and never to
// the node. What the node is told is [Refusal.Message], which says nothing that
// the sender did not know.
type Refusal struct {
	Node  string    // identity as claimed, perhaps no identity at all
	Code  wire.Code // the true code
	As    wire.Code // refuse as if it were this one, in every respect but the operator's; empty is Code
	After time.Duration
	Err   error // cause; may be nil
}

// refuse returns a refusal of the node with the code, because of err.
func refuse(node string, code wire.Code, err error) *Refusal {
	return &Refusal{Node: node, Code: code, Err: err}
}

// Error says everything, for operators.
func (r *Refusal) Error() string {
	if r.Err == nil {
		return fmt.Sprintf("refuse %q: %s: %s", r.Node, r.Code, wire.MeaningOf(r.Code).Public)
	}
	return fmt.Sprintf("refuse %q: %s: %v", r.Node, r.Code, r.Err)
}

// Unwrap returns the cause.
func (r *Refusal) Unwrap() error { return r.Err }

// as is the code that the node is refused with, before [wire.Code.ToldAs].
func (r *Refusal) as() wire.Code { return cmp.Or(r.As, r.Code) }

// Message returns what the node is told.
func (r *Refusal) Message() *wire.Refusal {
	told := wire.MeaningOf(r.as().ToldAs())
	return &wire.Refusal{
		Code:       told.Code,
		Message:    told.Public,
		Remedy:     told.Remedy,
		RetryAfter: cmp.Or(r.After, retryAfter(r.as())).Milliseconds(),
	}
}

// retryAfter is when a refused node should ask again if nobody has computed a
// better time. Nodes add jitter. Nodes that wait for a person
// are told by askAgain. What only a changed node or token can cure is asked about
// every five minutes, since people mend things without telling the node.
func retryAfter(c wire.Code) time.Duration {
	switch {
	case c == wire.CodeApprovalPending || c == wire.CodeIdentityTaken:
		return waiting.MaxAgain
	case c == wire.CodeDeferred || c == wire.CodePaused || c == wire.CodeQuotaExceeded || c == wire.CodeTokenUsedUp:
		return time.Minute
	case c == wire.CodeNotIssued || c == wire.CodeAppliedSignature:
		return time.Second
	case c == wire.CodeSourceLimited:
		// By then a budget that nobody goes on spending is whole again. Spread,
		// since those who share an address are told so together.
		return burstSeconds*time.Second + rand.N(2*burstSeconds*time.Second) //nolint:gosec // spreads load, hides nothing
	case wire.MeaningOf(c).Retry:
		return 10 * time.Second
	default:
		return 5 * time.Minute
	}
}

// CodeOf returns the code of a refusal anywhere in err's chain,
// [wire.CodeUnavailable] for any other error, and "" for none.
func CodeOf(err error) wire.Code {
	if err == nil {
		return ""
	}
	var r *Refusal
	if errors.As(err, &r) {
		return r.Code
	}
	return wire.CodeUnavailable
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
func RefusalEvent(r *Refusal, now time.Time, source string) events.Event {
	e := events.Event{Type: events.Refused, Time: now, Node: r.Node, Code: r.Code, Source: source}
	if authentication[r.Code] {
		e.Type = events.Attempt
	}
	if len(e.Node) > wire.MaxIdentityBytes {
		// Dots at its end, or what is cut could be another node's name.
		e.Node = e.Node[:wire.MaxIdentityBytes-3] + "..."
	}
	e.Node, e.Cause = events.Scrub(e.Node), events.BoundedText(r.Err)
	return e
}

// Authenticates reports whether a refusal with the code is of a request about
// which something was proven. All others are attempts: what they say of
// themselves is a stranger's word.
func Authenticates(c wire.Code) bool { return !authentication[c] }
