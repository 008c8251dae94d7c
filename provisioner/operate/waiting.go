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

// Keys are the keys that wait for a name, and what was decided about them.
type Keys struct{ *base }

// ErrNotWaiting means that no key waits for a name, or not the one that was named.
var ErrNotWaiting = errors.New("nobody waits under this name")

// silence is after how long without a request it is looked up whether a listed key still waits: it may have got in over
// a process that did not know it was listed.
const silence = 2 * time.Minute

// fewWaiting is how many may be listed for each to be looked up at once: a list that a person reads through, and 64 reads
// of the store, 1 ms each.
const fewWaiting = 64

// Waiting returns the keys that wait, the longest first, for one identity if id is not empty. Keys that have got in
// meanwhile, or were rejected, are left out, and taken off the list.
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
		over, err := k.over(ctx, w.Key, len(list) <= fewWaiting)
		if err != nil {
			return nil, err
		}
		if !over {
			still = append(still, w.Key)
		} else if err := k.store.DropWaiter(ctx, w.Identity, w.KeyHash, w.at); err != nil {
			k.log.WarnContext(ctx, "key that does not wait is still on the list", "node", w.Identity, "key", w.KeyHash, "err", err)
		}
	}
	slices.SortFunc(still, func(a, b *waiting.Key) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Identity, b.Identity), cmp.Compare(a.KeyHash, b.KeyHash))
	})
	return still, nil
}

// over reports whether a key on the list no longer waits: it was rejected, or has got in. Its record is read if few
// wait, or if it has been silent.
func (k *Keys) over(ctx context.Context, w *waiting.Key, few bool) (bool, error) {
	if k.logs.Answers.Rejection(w.Identity, w.KeyHash) != nil {
		return true, nil
	}
	silent := k.now().Sub(w.LastAsked).Abs() >= silence // or it was written by a clock that was ahead
	if !silent && !few {
		return false, nil
	}
	r, _, err := k.store.Record(ctx, w.Identity)
	return err == nil && r.HasEnrolled(w, silent), err
}

// Count returns how many keys wait.
func (k *Keys) Count(ctx context.Context) (int, error) { return k.store.CountWaiters(ctx) }

// Rejected returns the rejections in force, the oldest first.
func (k *Keys) Rejected() []*orders.Answer { return k.logs.Answers.Rejected() }

// Approval returns the approval that lets a key in which waits for one, nil if there is none that counts.
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

// foresee says what the key of an approval is told when it asks next.
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

// minKeyPrefix is how much of a key's hash an operator must give at least, in hex digits: short enough to read out, and
// no two of the few keys that wait for one name share it by accident.
const minKeyPrefix = 8

// CheckKeyPrefix says what about the hash of a key, or its beginning, cannot be; empty is good where only one key waits.
func CheckKeyPrefix(key string) error {
	if key != "" && (len(key) < minKeyPrefix || len(key) > 64 || strings.Trim(key, "0123456789abcdef") != "") {
		return fmt.Errorf("key %.80q, want %d to 64 lower-case hex digits of its SHA-256", key, minKeyPrefix)
	}
	return nil
}

// waiterNamed returns the one key that waits for the identity and whose hash begins with key, which may be empty.
func (k *Keys) waiterNamed(ctx context.Context, id wire.Identity, key string) (*waiting.Key, error) {
	if err := wrong(CheckKeyPrefix(key)); err != nil {
		return nil, err
	}
	listed, err := k.Waiting(ctx, id)
	if err != nil {
		return nil, err
	}
	var found []*waiting.Key
	var keys []string
	for _, w := range listed {
		keys = append(keys, shortKey(w.KeyHash))
		if strings.HasPrefix(w.KeyHash, key) {
			found = append(found, w)
		}
	}
	switch {
	case len(listed) == 0:
		return nil, k.noneWaits(id)
	case len(found) == 0:
		return nil, fmt.Errorf("%w with key %s; waiting with %s", ErrNotWaiting, key, strings.Join(keys, ", "))
	case len(found) > 1:
		return nil, fmt.Errorf("%w: %d keys wait under this name, say which one you mean with --key: %s",
			trust.ErrState, len(found), strings.Join(keys, ", "))
	}
	return found[0], nil
}

// noneWaits says why no key waits for an identity, and what can be ordered instead.
func (k *Keys) noneWaits(id wire.Identity) error {
	var rejected []string
	for _, a := range k.Rejected() {
		if a.Identity == id {
			rejected = append(rejected, shortKey(a.KeyHash))
		}
	}
	switch {
	case len(rejected) > 0:
		return fmt.Errorf("%w; a key of it was rejected, which is meant by --key %s", ErrNotWaiting, strings.Join(rejected, " or "))
	case k.provisioner.Revocations().Outstanding(id, "") != nil: // a key that asks may be told to wait, as for a free name
		return fmt.Errorf("%w, for it is revoked; if a machine is to have it, `muster node retire %s` first, which frees the name",
			ErrNotWaiting, id)
	}
	return fmt.Errorf("%w: `muster node pending` lists who does", ErrNotWaiting)
}

// shortKey is the beginning of a key's hash, for people.
func shortKey(hash string) string { return events.Cut(hash, 2*minKeyPrefix) }

// rejectedOnly returns the rejection of an identity's key whose hash begins with key, which may be empty; nil if there
// is none, or several.
func (k *Keys) rejectedOnly(id wire.Identity, key string) *orders.Answer {
	var found *orders.Answer
	for _, a := range k.Rejected() {
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
