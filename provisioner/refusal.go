package provisioner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"muster/internal/wire"
	"muster/policies"
	"muster/provisioner/events"
	"muster/provisioner/waiting"
)

// A Refusal is the only error of [Provisioner.Enroll], [Provisioner.Renew] and [Provisioner.Applied]. Err is for log
// and events only; [Refusal.Message] leaves it out.
type Refusal struct {
	Code       wire.Code
	PublicCode wire.Code // sent to the node in place of Code, if not empty
	After      time.Duration
	Err        error // may be nil

	// Proven: the request's token was verified, so its sender may know the reason.
	Proven bool
}

func refuse(code wire.Code, err error) *Refusal {
	return &Refusal{Code: code, Err: err}
}

// Error returns the text for operators.
func (r *Refusal) Error() string {
	if r.Err == nil {
		return fmt.Sprintf("refused: %s: %s", r.Code, wire.MeaningOf(r.Code).Public)
	}
	return fmt.Sprintf("refused: %s: %v", r.Code, r.Err)
}

func (r *Refusal) Unwrap() error { return r.Err }

func (r *Refusal) public() wire.Code { return cmp.Or(r.PublicCode, r.Code) }

// Message returns the message for the node.
func (r *Refusal) Message() *wire.Refusal {
	code := r.public().SentAs()
	told := wire.MeaningOf(code)
	return &wire.Refusal{
		Code:       code,
		Message:    told.Public,
		Remedy:     told.Remedy,
		RetryAfter: cmp.Or(r.After, retryAfter(r.public())).Milliseconds(),
	}
}

// Nodes add jitter. They retry even if only a repair of the node or another token helps, since the agent may not notice
// it.
func retryAfter(c wire.Code) time.Duration {
	switch {
	case c == wire.CodeApprovalPending || c == wire.CodeIdentityTaken:
		return waiting.MaxRetry
	case c == wire.CodeDeferred || c == wire.CodePaused || c == wire.CodeQuotaExceeded || c == wire.CodeTokenUsedUp:
		return time.Minute
	case c == wire.CodeNotIssued || c == wire.CodeAppliedSignature:
		return time.Second
	case c == wire.CodeSourceLimited:
		// By then the budget is full again. The random part spreads nodes behind one address.
		return burstSeconds*time.Second +
			rand.N(2*burstSeconds*time.Second) //nolint:gosec // spreads load, hides nothing
	case wire.MeaningOf(c).Retry:
		return 10 * time.Second
	default:
		return 5 * time.Minute
	}
}

// CodeOf returns the code of a refusal, [wire.CodeUnavailable] for other errors, and "" for nil.
func CodeOf(err error) wire.Code {
	if err == nil {
		return ""
	}
	return RefusalOf(err, wire.CodeUnavailable).Code
}

// RefusalOf returns the refusal that err wraps, or a new one with the code.
func RefusalOf(err error, otherwise wire.Code) *Refusal {
	if r, ok := errors.AsType[*Refusal](err); ok {
		return r
	}
	return refuse(otherwise, err)
}

// unproven has the codes of unauthenticated requests. Their events have their own stream, so that a flood cannot
// displace the history.
var unproven = map[wire.Code]bool{
	wire.CodeBadRequest:         true,
	wire.CodeTooLarge:           true,
	wire.CodeUnsupportedVersion: true,
	wire.CodeSealedUnsupported:  true,
	wire.CodeIdentityInvalid:    true,
	wire.CodeTokenInvalid:       true,
	wire.CodeTokenExpired:       true,
	wire.CodeTokenNotYetValid:   true,
	wire.CodeNotIssued:          true,
	wire.CodeAppliedSignature:   true,
	wire.CodeSourceLimited:      true,
	wire.CodeClockBehind:        true, // checked before the token
	wire.CodeSealedInvalid:      true,
}

// RefusalEvent returns the event for a refusal of the node, as it calls itself.
func RefusalEvent(node string, r *Refusal, now time.Time, source string) events.Event {
	e := events.Event{
		Type:   events.Refused,
		Time:   now,
		Node:   node,
		Code:   r.Code,
		Source: source,
	}
	if unproven[r.Code] {
		e.Type = events.Attempt
	}
	if len(e.Node) > wire.MaxIdentityBytes {
		// Marked as cut, since the first part alone could be another node's name.
		e.Node = e.Node[:wire.MaxIdentityBytes-3] + "..."
	}
	e.Node, e.Cause = events.Scrub(e.Node), events.BoundedText(r.Err)
	return e
}

// Authenticated reports whether a request refused with the code was authenticated.
func Authenticated(c wire.Code) bool { return !unproven[c] }

// ErrNoRecord means that an identity has never enrolled here.
var ErrNoRecord = errors.New("no such node has enrolled")

// An OrderError means that an operator's order is invalid; nothing was done.
type OrderError struct{ Err error }

func (e *OrderError) Error() string { return e.Err.Error() }

func (e *OrderError) Unwrap() error { return e.Err }

// concealExistence answers as for an unknown name, so that a token holder cannot enumerate the fleet. Keys of the
// lineage get the true code.
func (a *attempt) concealExistence(ctx context.Context, err error) error {
	var r *Refusal
	if a.renewal || !errors.As(err, &r) || r.Code != wire.CodeIdentityTaken && r.Code != wire.CodeIdentityRevoked {
		return err
	}
	if a.record != nil && (slices.Contains(a.record.Lineage, a.csr.KeyHash) ||
		slices.Contains(a.record.Lineage, a.vouching)) {
		return err
	}
	r.PublicCode = a.codeForUnknownName(ctx)
	return r
}

// codeForUnknownName returns the code that [attempt.round] would give for a new name, "" if admitted.
func (a *attempt) codeForUnknownName(ctx context.Context) wire.Code {
	free := &attempt{proof: a.proof, findings: findings{reason: ReasonNew}}
	free.renewal = false
	for _, check := range []func() error{free.checkPaused, free.checkStorage} {
		if err := check(); err != nil {
			return CodeOf(err)
		}
	}
	free.allowance = a.logs.Allowances.Match(a.identity, a.now(), free.provenBy() == policies.ProofNone)
	d, err := a.cfg.Policy.Decide(ctx, free.input())
	if err != nil {
		return wire.CodePolicyFailed
	}
	if d.Verdict() == policies.VerdictAllow && a.logs.InRecovery() != nil {
		return wire.CodeApprovalPending
	}
	return verdictCodes[d.Verdict()]
}

var verdictCodes = map[policies.Verdict]wire.Code{
	policies.VerdictDeny:     wire.CodeDenied,
	policies.VerdictShutdown: wire.CodeShutdown,
	policies.VerdictDefer:    wire.CodeDeferred,
	policies.VerdictApproval: wire.CodeApprovalPending,
}
