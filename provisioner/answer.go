package provisioner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"muster/provisioner/trust"

	"muster/internal/wire"
)

// AnswerSchema is the version of an answer's JSON form.
const AnswerSchema = 1

// MaxApprovalTTL bounds an approval's life: an open door should not be forgotten.
const MaxApprovalTTL = 7 * 24 * time.Hour

// A Verdict is what an operator says of a key that waits.
type Verdict string

// The verdicts. Of several about one key the last one counts.
const (
	VerdictApprove Verdict = "approve" // let in, once, until it expires
	VerdictReject  Verdict = "reject"  // keep out, until there is another verdict
	VerdictNone    Verdict = "none"    // as if nothing had been said
)

// An Answer is an operator's verdict about one key that waits for one identity:
// another key with that name gains nothing by it.
//
// An approval is spent when a record of its identity names it: spending and
// using it are one write, so it can be neither used twice nor lost.
type Answer struct {
	Schema    int           `json:"schema"`
	ID        string        `json:"id"`
	Identity  wire.Identity `json:"identity"`
	KeyHash   string        `json:"key_hash"`
	Verdict   Verdict       `json:"verdict"`
	At        time.Time     `json:"at"`
	ExpiresAt time.Time     `json:"expires_at,omitzero"` // of an approval
	trust.Cause
}

// A SpentApproval says which approval let a record's key in.
type SpentApproval struct {
	ID string    `json:"id"`
	At time.Time `json:"at"` // when it was spent
	By string    `json:"by,omitempty"`

	// KeyHash is the key that it was for: asking again because the reply was lost
	// takes no other approval.
	KeyHash string `json:"key_hash,omitempty"`
}

// Check reports what about an answer cannot be.
func (a *Answer) Check() error {
	if a.Schema != AnswerSchema {
		return fmt.Errorf("answer about %q: schema %d, want %d", a.Identity, a.Schema, AnswerSchema)
	}
	if _, err := wire.ParseIdentity(string(a.Identity)); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	switch a.Verdict {
	case VerdictApprove, VerdictReject, VerdictNone:
	default:
		return fmt.Errorf("answer about %q: verdict %.80q", a.Identity, a.Verdict)
	}
	if a.ID == "" || !trust.IsSHA256(a.KeyHash) {
		return fmt.Errorf("answer about %q: id %.80q, key hash %.80q", a.Identity, a.ID, a.KeyHash)
	}
	return a.Cause.Check()
}

// admits reports whether the approval lets its key have the identity of r, which
// may be nil. One that is spent still answers the key that spent it, which asks
// for the same certificate once again since the reply was lost. Approvals that
// were given before another one was spent are for a machine that came too late.
func (a *Answer) admits(r *Record, reason Reason, now time.Time) bool {
	if a == nil || a.Verdict != VerdictApprove {
		return false
	}
	if r != nil && r.Approval != nil {
		if r.Approval.ID == a.ID {
			return reason == ReasonReplay
		}
		if !a.At.After(r.Approval.At) {
			return false
		}
	}
	return a.Open(now)
}

// Open reports whether the time of an approval is not over at now.
func (a *Answer) Open(now time.Time) bool {
	return now.Before(a.ExpiresAt)
}

// LogKey is the key of the log's entries about this key.
func (a *Answer) LogKey() string { return answerKey(a.Identity, a.KeyHash) }

func answerKey(id wire.Identity, keyHash string) string { return id.SubjectToken() + "." + keyHash }

// approved answers the policy's question for a person.
func (p *Provisioner) approved(ctx context.Context, a *attempt) error {
	node := string(a.identity)
	if r := a.record; a.reason == ReasonReplay && r.Approval != nil && r.Approval.KeyHash == a.csr.KeyHash {
		return nil
	}
	if answer := p.approval(a.identity, a.csr.KeyHash, a.record, a.reason); answer != nil {
		a.approval = answer
		return nil
	}
	if p.cfg.Autosign == nil || p.logs.InRecovery() != nil {
		return refuse(node, wire.CodeApprovalPending, because(a.decision))
	}
	if err := p.cfg.Autosign(ctx, a.identity, a.request.CSR); err != nil {
		return refuse(node, wire.CodeApprovalPending, errors.Join(because(a.decision), err))
	}
	a.approval = &Answer{ID: wire.NewID(), Cause: trust.Cause{By: AutosignBy}}
	return nil
}

// approval returns the approval that lets a key have the identity of r, which may be nil, on
// the ground of reason; nil if there is none.
func (p *Provisioner) approval(id wire.Identity, keyHash string, r *Record, reason Reason) *Answer {
	answer, at := p.logs.Answers.Of(id, keyHash)
	if !p.logs.NewestRecovery().voids(at) && p.counts(answer, r, reason) {
		return answer
	}
	return nil
}

// AutosignBy is who approved what the operators' command did.
const AutosignBy = "autosign"
