package orders

import (
	"fmt"
	"slices"
	"time"

	"muster/provisioner/trust"

	"muster/internal/wire"
)

// AnswerSchema is the version of the JSON form.
const AnswerSchema = 1

// MaxApprovalTTL bounds approvals, since operators forget them.
const MaxApprovalTTL = 7 * 24 * time.Hour

// A Verdict is an operator's decision about a pending key.
type Verdict string

// The verdicts. The last one about a key counts.
const (
	VerdictApprove Verdict = "approve" // admit once, until it expires
	VerdictReject  Verdict = "reject"  // refuse, until there is another verdict
	VerdictNone    Verdict = "none"    // withdraws the last one
)

// An Answer is an operator's verdict about one key for one identity. The write of a record that names an approval
// spends it, so it is neither used twice nor lost.
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

// Check returns what is invalid.
func (a *Answer) Check() error {
	if a.Schema != AnswerSchema {
		return fmt.Errorf("answer about %q: schema %d, want %d", a.Identity, a.Schema, AnswerSchema)
	}
	if _, err := wire.ParseIdentity(string(a.Identity)); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	if !slices.Contains([]Verdict{VerdictApprove, VerdictReject, VerdictNone}, a.Verdict) {
		return fmt.Errorf("answer about %q: unknown verdict %.80q", a.Identity, a.Verdict)
	}
	if a.ID == "" || !trust.IsSHA256(a.KeyHash) {
		return fmt.Errorf("answer about %q: id %.80q, key hash %.80q, want an id and a SHA-256 in hex", a.Identity,
			a.ID, a.KeyHash)
	}
	return a.Cause.Check()
}

// Open reports whether an approval has not expired.
func (a *Answer) Open(now time.Time) bool {
	return now.Before(a.ExpiresAt)
}

// LogKey is the answer's key in the log.
func (a *Answer) LogKey() string { return answerKey(a.Identity, a.KeyHash) }

func answerKey(id wire.Identity, keyHash string) string { return id.SubjectToken() + "." + keyHash }
