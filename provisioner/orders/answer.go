package orders

import (
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

// Open reports whether the time of an approval is not over at now.
func (a *Answer) Open(now time.Time) bool {
	return now.Before(a.ExpiresAt)
}

// LogKey is the key of the log's entries about this key.
func (a *Answer) LogKey() string { return answerKey(a.Identity, a.KeyHash) }

func answerKey(id wire.Identity, keyHash string) string { return id.SubjectToken() + "." + keyHash }
