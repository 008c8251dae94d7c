package provisioner

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"muster/internal/wire"
	"muster/provisioner/events"
)

// answers are operators' verdicts, as this process knows them. Rejections have an index of
// their own, since orders name keys by the beginning of their hashes.
type answers struct {
	log Log[*Answer]

	mu       sync.RWMutex
	rejected map[holder]*Answer // guarded by mu
}

// newAnswers returns the verdicts of a log. It calls said for the key of each verdict.
func newAnswers(log Log[*Answer], said func(holder)) *answers {
	as := &answers{log: log, rejected: make(map[holder]*Answer)}
	log.Watch(func(key string, e Entry[*Answer]) {
		a := answerOf(key, e)
		h := holder{a.KeyHash, a.Identity}
		as.mu.Lock()
		if a.Verdict == VerdictReject {
			as.rejected[h] = a
		} else {
			delete(as.rejected, h)
		}
		as.mu.Unlock()
		said(h)
	})
	return as
}

// answerOf returns the verdict that an entry is. One that cannot be read is a rejection.
func answerOf(key string, e Entry[*Answer]) *Answer {
	if e.Unread == nil {
		return e.Value
	}
	token, hash, _ := strings.Cut(key, ".")
	id, _ := wire.ParseSubjectToken(token) // else it is about no node
	return &Answer{Identity: id, KeyHash: hash, Verdict: VerdictReject, At: e.At.UTC().Truncate(time.Second), Cause: CauseUnread}
}

// of returns the newest verdict about a key, which is nil without one, and its revision.
func (as *answers) of(h holder) (*Answer, Revision) {
	key := answerKey(h)
	e, found := as.log.Get(key)
	if !found {
		return nil, 0
	}
	return answerOf(key, e), e.Revision
}

// rejection returns the rejection of a key, or nil.
func (as *answers) rejection(h holder) *Answer {
	as.mu.RLock()
	defer as.mu.RUnlock()
	return as.rejected[h]
}

// rejectedNamed returns the rejection of the one key of an identity whose hash begins
// with key, which must be given; nil if there is none.
func (as *answers) rejectedNamed(id wire.Identity, key string) *Answer {
	if len(key) < minKeyPrefix {
		return nil
	}
	return as.rejectedOnly(id, key)
}

// rejectedKeys returns the beginnings of the rejected keys of an identity, the
// oldest rejection first.
func (as *answers) rejectedKeys(id wire.Identity) (keys []string) {
	for _, a := range as.list() {
		if a.Identity == id {
			keys = append(keys, events.Cut(a.KeyHash, 2*minKeyPrefix))
		}
	}
	return keys
}

// rejectedOnly returns the rejection of an identity's key whose hash begins with
// key, which may be empty; nil if there is none, or several.
func (as *answers) rejectedOnly(id wire.Identity, key string) *Answer {
	as.mu.RLock()
	defer as.mu.RUnlock()
	var found *Answer
	for _, a := range as.rejected { // in no order: whoever approves thousands does not sort thousands for each
		if a.Identity != id || !strings.HasPrefix(a.KeyHash, key) {
			continue
		}
		if found != nil {
			return nil
		}
		found = a
	}
	return found
}

// list returns all rejections, the oldest first.
func (as *answers) list() []*Answer {
	as.mu.RLock()
	defer as.mu.RUnlock()
	list := make([]*Answer, 0, len(as.rejected))
	for _, a := range as.rejected {
		list = append(list, a)
	}
	slices.SortFunc(list, func(a, b *Answer) int {
		if c := a.At.Compare(b.At); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return list
}

// Rejected returns the keys that operators have rejected, the oldest first.
func (p *Provisioner) Rejected() []*Answer { return p.answers.list() }

// checkRejected refuses a key that an operator has rejected. Connections to the
// fleet are not its business: `muster node revoke` is for those.
func (p *Provisioner) checkRejected(a *attempt) error {
	if a.csr == nil {
		return nil
	}
	by := p.answers.rejection(holder{a.csr.KeyHash, a.identity})
	if by == nil {
		return nil
	}
	return refuse(string(a.identity), wire.CodeRejected, fmt.Errorf("rejected %s", by.rejection()))
}

// rejection says who has rejected a key, when and why.
func (a *Answer) rejection() string {
	why := a.Why
	if why != "" {
		why = ": " + why
	}
	return fmt.Sprintf("by %s at %s%s", a.By, a.At.Format(time.RFC3339), why)
}
