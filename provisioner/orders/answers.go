package orders

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"muster/internal/wire"
	"muster/provisioner/trust"
)

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
