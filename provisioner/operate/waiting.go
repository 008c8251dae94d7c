package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"muster/provisioner/waiting"

	"muster/provisioner/orders"

	"muster/provisioner/trust"

	"muster/internal/wire"
	"muster/provisioner/events"
)

// Keys are the keys on the pending list, and verdicts about them.
type Keys struct{ *base }

// ErrNotWaiting means that no such key waits for the name.
var ErrNotWaiting = errors.New("no key waits for this name")

// silence is the time without a request after which a listed key's record is read: the key may have enrolled through
// another provisioner.
const silence = 2 * time.Minute

// fewWaiting keys are looked up at once: 64 reads of 1 ms.
const fewWaiting = 64

// Waiting returns the waiting keys, longest first, of one identity or, if id is empty, all. Keys that have enrolled or
// were rejected are taken off the list.
func (k *Keys) Waiting(ctx context.Context, id wire.Identity) ([]*waiting.Key, error) {
	type entry struct {
		*waiting.Key
		at trust.Revision
	}
	var list []entry
	err := k.store.Waiters(ctx, id, func(w *waiting.Key, at trust.Revision) error {
		list = append(list, entry{w, at})
		return nil
	})
	if err != nil {
		return nil, err
	}
	still := make([]*waiting.Key, 0, len(list))
	for _, w := range list {
		k.provisioner.Pending().Update(w.Key)
		over, err := k.over(ctx, w.Key, len(list) <= fewWaiting)
		if err != nil {
			return nil, err
		}
		if !over {
			still = append(still, w.Key)
			continue
		}
		err = k.store.DropWaiter(ctx, w.Identity, w.KeyHash, w.at)
		k.provisioner.Pending().Forget(w.Holder())
		if err != nil {
			k.log.WarnContext(ctx, "key no longer waits but is still on the pending list",
				"node", w.Identity, "key", w.KeyHash, "err", err)
		}
	}
	slices.SortFunc(still, func(a, b *waiting.Key) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Identity, b.Identity), cmp.Compare(a.KeyHash, b.KeyHash))
	})
	return still, nil
}

// over reports whether a listed key was rejected or has enrolled.
func (k *Keys) over(ctx context.Context, w *waiting.Key, few bool) (bool, error) {
	if k.logs.Answers.Rejection(w.Identity, w.KeyHash) != nil {
		return true, nil
	}
	silent := k.now().Sub(w.LastAsked).Abs() >= silence // negative if a fast clock wrote it
	if !silent && !few {
		return false, nil
	}
	r, _, err := k.store.Record(ctx, w.Identity)
	return err == nil && r.HasEnrolled(w, silent), err
}

// Count returns the length of the pending list.
func (k *Keys) Count() int { return k.provisioner.Pending().Len() }

// Full returns why a node that asked lately got no place on the pending list, or nil.
func (k *Keys) Full() error { return k.provisioner.Pending().Full() }

// Rejected returns the rejections in force, oldest first.
func (k *Keys) Rejected() []*orders.Answer { return k.logs.Answers.Rejected() }

// Approval returns the approval that will let a waiting key in, or nil.
func (k *Keys) Approval(ctx context.Context, w *waiting.Key) (*orders.Answer, error) {
	answer, _ := k.logs.Answers.Of(w.Identity, w.KeyHash)
	if w.Code != wire.CodeApprovalPending || answer == nil {
		return nil, nil
	}
	code, err := k.foresee(ctx, answer)
	if err != nil || code != "" && code != wire.CodePaused {
		return nil, err
	}
	return answer, nil
}

func (k *Keys) foresee(ctx context.Context, a *orders.Answer) (wire.Code, error) {
	record, _, err := k.store.Record(ctx, a.Identity)
	if err != nil {
		return "", err
	}
	grant, _, err := k.logs.Grant(a.Identity)
	if err != nil {
		return "", err
	}
	return k.provisioner.Forecast(ctx, a, record, grant), nil
}

// minKeyPrefix is short enough to read aloud, and unique among the few keys of one name.
const minKeyPrefix = 8

// CheckKeyPrefix checks a key's hash, or a prefix, which may be empty.
func CheckKeyPrefix(key string) error {
	if key != "" && (len(key) < minKeyPrefix || len(key) > 64 || strings.Trim(key, "0123456789abcdef") != "") {
		return fmt.Errorf("key %.80q, want %d to 64 lower-case hex digits of its SHA-256", key, minKeyPrefix)
	}
	return nil
}

func (k *Keys) waiterNamed(ctx context.Context, of KeyChoice) (*waiting.Key, error) {
	id, key := of.Identity, of.Key
	if err := wrong(CheckKeyPrefix(key)); err != nil {
		return nil, err
	}
	listed, err := k.Waiting(ctx, id)
	if err != nil {
		return nil, err
	}
	listed = slices.DeleteFunc(listed, func(w *waiting.Key) bool { return !of.Sites.Has(w.Site) })
	var found []*waiting.Key
	var keys []string
	for _, w := range listed {
		keys = append(keys, shortKey(w.KeyHash))
		if strings.HasPrefix(w.KeyHash, key) {
			found = append(found, w)
		}
	}
	switch {
	case len(listed) == 0 && of.Sites != nil:
		return nil, fmt.Errorf("%w: %w", ErrNotWaiting, ErrOtherSite)
	case len(listed) == 0:
		return nil, k.noneWaits(id)
	case len(found) == 0:
		return nil, fmt.Errorf("%w with key %s; waiting with %s", ErrNotWaiting, key, strings.Join(keys, ", "))
	case len(found) > 1:
		return nil, fmt.Errorf("%w: %d keys wait for this name, choose one with --fingerprint: %s",
			trust.ErrState, len(found), strings.Join(keys, ", "))
	}
	return found[0], nil
}

func (k *Keys) noneWaits(id wire.Identity) error {
	var rejected []string
	for _, a := range k.Rejected() {
		if a.Identity == id {
			rejected = append(rejected, shortKey(a.KeyHash))
		}
	}
	switch {
	case len(rejected) > 0:
		return fmt.Errorf("%w; a key of this name was rejected: to choose it, add --fingerprint %s", ErrNotWaiting,
			strings.Join(rejected, " or "))
	case k.provisioner.Revocations().Outstanding(id, "") != nil:
		return fmt.Errorf("%w: it is revoked; to let a node have it, run `muster node retire %s` first, which frees "+
			"the name",
			ErrNotWaiting, id)
	}
	return fmt.Errorf("%w: `muster node pending` lists the waiting nodes", ErrNotWaiting)
}

func shortKey(hash string) string { return events.Cut(hash, 2*minKeyPrefix) }

// rejectedOnly returns the rejection of the only rejected key with this prefix, or nil.
func (k *Keys) rejectedOnly(of KeyChoice) *orders.Answer {
	var found *orders.Answer
	for _, a := range k.Rejected() {
		if a.Identity != of.Identity || !strings.HasPrefix(a.KeyHash, of.Key) || !of.Sites.Has(a.Site) {
			continue
		}
		if found != nil {
			return nil
		}
		found = a
	}
	return found
}
