package orders

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/trust"
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
	Site      jwt.Site      `json:"site,omitempty"` // where the key waited
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

// Answers is this process's view of verdicts.
type Answers struct{ trust.Log[*Answer] }

// answerOf returns an unreadable verdict as a rejection.
func answerOf(key string, e trust.Entry[*Answer]) *Answer {
	if e.Unread == nil {
		return e.Value
	}
	token, hash, _ := strings.Cut(key, ".")
	id, _ := wire.ParseSubjectToken(token) // an invalid name matches no node
	return &Answer{
		Identity: id,
		KeyHash:  hash,
		Verdict:  VerdictReject,
		At:       e.At.UTC().Truncate(time.Second),
		Cause:    trust.CauseUnread,
	}
}

// Of returns the newest verdict about a key, or nil, with its revision.
func (as Answers) Of(id wire.Identity, keyHash string) (*Answer, trust.Revision) {
	key := answerKey(id, keyHash)
	e, found := as.Get(key)
	if !found {
		return nil, 0
	}
	return answerOf(key, e), e.Revision
}

// Rejection returns the rejection of a key, or nil.
func (as Answers) Rejection(id wire.Identity, keyHash string) *Answer {
	if a, _ := as.Of(id, keyHash); a != nil && a.Verdict == VerdictReject {
		return a
	}
	return nil
}

// Rejected returns all rejections, oldest first.
func (as Answers) Rejected() []*Answer {
	list := []*Answer{}
	for key, e := range as.All() {
		if a := answerOf(key, e); a.Verdict == VerdictReject {
			list = append(list, a)
		}
	}
	slices.SortFunc(list, func(a, b *Answer) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.ID, b.ID))
	})
	return list
}

// Source says which operator gave the verdict, when and why.
func (a *Answer) Source() string {
	return fmt.Sprintf("by %s at %s%s", a.By, a.At.Format(time.RFC3339), because(a.Cause))
}

// WatchVerdicts calls answered for each verdict, see [trust.Log].
func (as Answers) WatchVerdicts(answered func(*Answer)) {
	as.Watch(func(key string, e trust.Entry[*Answer]) { answered(answerOf(key, e)) })
}
