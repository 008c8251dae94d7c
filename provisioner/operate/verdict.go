package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"muster/provisioner/waiting"

	"muster/provisioner/orders"

	"muster/provisioner/trust"

	"muster/internal/wire"
	"muster/provisioner/events"
)

// DefaultApprovalTTL leaves a day to switch the node on.
const DefaultApprovalTTL = 24 * time.Hour

// A KeyChoice selects the key of an order, by [Named] or as a list showed it.
type KeyChoice struct {
	Identity wire.Identity
	Key      string // SHA-256 in hex; for [Named] a prefix

	// Shown: the key comes from a list. If it was rejected later, the order fails with [trust.ErrState].
	Shown     bool
	Rejected  bool
	Rejection string // id of the rejection shown; empty: unreadable

	// Sites are those of the operator: keys that wait elsewhere are [ErrOtherSite].
	Sites trust.Sites
}

// Named selects a key by a prefix of its hash, which may be empty if only one key waits.
func Named(id wire.Identity, key string) KeyChoice { return KeyChoice{Identity: id, Key: key} }

// subject is the key of a verdict, and the rejection that the verdict lifts, or nil.
type subject struct {
	*waiting.Key
	rejection *orders.Answer
}

func rejectedKey(by *orders.Answer) *subject {
	return &subject{
		&waiting.Key{Identity: by.Identity, KeyHash: by.KeyHash, Site: by.Site, Code: wire.CodeRejected},
		by,
	}
}

func (k *Keys) choose(ctx context.Context, c KeyChoice) (*subject, error) {
	if c.Shown {
		return k.asShown(ctx, c)
	}
	if len(c.Key) >= minKeyPrefix {
		if a := k.rejectedOnly(c); a != nil {
			return rejectedKey(a), nil
		}
	}
	w, err := k.waiterNamed(ctx, c)
	return &subject{Key: w}, err
}

func (k *Keys) asShown(ctx context.Context, c KeyChoice) (*subject, error) {
	if err := wrong(trust.CheckKeyHash(c.Key)); err != nil {
		return nil, err
	}
	by := k.logs.Answers.Rejection(c.Identity, c.Key)
	switch {
	case by == nil:
		w, err := k.waiterNamed(ctx, c)
		return &subject{Key: w}, err
	case !c.Sites.Has(by.Site):
		return nil, ErrOtherSite
	case !c.Rejected || c.Rejection != by.ID:
		return nil, fmt.Errorf("%w: its key was rejected after the list was shown, %s", trust.ErrState, by.Source())
	}
	return rejectedKey(by), nil
}

// Approve lets a waiting key enroll once within ttl: 0 is [DefaultApprovalTTL], [orders.MaxApprovalTTL] the limit. It
// only satisfies a policy that asks for approval. Repeated approvals still let the key enroll only once. The error is
// [ErrNotWaiting], or [trust.ErrState] if name or key is revoked or taken, or several keys wait.
func (k *Keys) Approve(ctx context.Context, of KeyChoice, ttl time.Duration,
	c trust.Cause) (_ *orders.Answer, err error) {
	defer about(&err, "approve %q", of.Identity)
	ttl = cmp.Or(ttl, DefaultApprovalTTL)
	err = c.Check()
	if ttl < time.Minute || ttl > orders.MaxApprovalTTL {
		err = errors.Join(err, fmt.Errorf("for %v, want 1m to %v", ttl, orders.MaxApprovalTTL))
	}
	if err := wrong(err); err != nil {
		return nil, err
	}
	return k.decide(ctx, verdict{orders.VerdictApprove, ttl, c}, of, func() (*subject, error) {
		s, err := k.choose(ctx, of)
		if err == nil {
			err = errors.Join(k.approvable(ctx, s.Key), k.judge(of.Identity))
		}
		return s, err
	})
}

func (k *Keys) approvable(ctx context.Context, w *waiting.Key) error {
	switch w.Code {
	case wire.CodeIdentityTaken:
		if r, _, err := k.store.Record(ctx, w.Identity); err != nil || r.Awaits() {
			return err
		}
		return errKeepsName(w.Identity, w.KeyHash)
	case wire.CodeIdentityRevoked:
		return errNameRevoked(w.Identity)
	case wire.CodeDeferred:
		return fmt.Errorf("%w: the policy defers the node and does not ask for approval: %s",
			trust.ErrState, strings.Join(w.Reasons, "; "))
	}
	return nil
}

func errKeepsName(id wire.Identity, keyHash string) error {
	return fmt.Errorf("%w: the name belongs to another key; if the machine was reinstalled and its log has this key, "+
		"run `muster node grant %s --fingerprint %s`", trust.ErrState, id, keyHash)
}

func errNameRevoked(id wire.Identity) error {
	return fmt.Errorf("%w: the name is revoked; run `muster node retire %s` first, which frees the name",
		trust.ErrState, id)
}

// Reject refuses a key until it is approved or forgotten, even if policy, allow-list or token admit it. The error is
// [ErrNotWaiting], or [trust.ErrState] if several keys wait.
func (k *Keys) Reject(ctx context.Context, of KeyChoice, c trust.Cause) (_ *orders.Answer, err error) {
	defer about(&err, "reject %q", of.Identity)
	if err := wrong(c.Check()); err != nil {
		return nil, err
	}
	var before *orders.Answer
	a, err := k.decide(ctx, verdict{orders.VerdictReject, 0, c}, of, func() (*subject, error) {
		w, err := k.waiterNamed(ctx, of)
		if errors.Is(err, ErrNotWaiting) {
			before = k.rejectedOnly(of)
		}
		return &subject{Key: w}, err
	})
	if before != nil {
		return before, nil
	}
	return a, err
}

// Forget removes a key from the pending list with the verdict about it; its next request waits again. If no key waits,
// an empty key selects the name's only rejected one. The error is [ErrNotWaiting], or [trust.ErrState] if several keys
// wait.
//
// The verdict is written first: after a crash the operator can still name the key.
func (k *Keys) Forget(ctx context.Context, of KeyChoice, c trust.Cause) (_ *orders.Answer, err error) {
	defer about(&err, "forget %q", of.Identity)
	if err := wrong(c.Check()); err != nil {
		return nil, err
	}
	return k.decide(ctx, verdict{orders.VerdictNone, 0, c}, of, func() (*subject, error) {
		s, err := k.choose(ctx, of)
		if errors.Is(err, ErrNotWaiting) && of.Key == "" {
			if only := k.rejectedOnly(of); only != nil {
				return rejectedKey(only), nil
			}
		}
		return s, err
	})
}

var verdicts = map[orders.Verdict]struct {
	event   events.Type
	message string
}{
	orders.VerdictApprove: {events.Approved, "node approved"},
	orders.VerdictReject:  {events.Rejected, "node rejected"},
	orders.VerdictNone:    {events.Forgotten, "node forgotten"},
}

type verdict struct {
	orders.Verdict
	ttl   time.Duration // of an approval
	cause trust.Cause
}

const maxRounds = 8

// decide chooses again after a conflict, so an order lifts only the rejection that its operator saw.
func (k *Keys) decide(ctx context.Context, v verdict, of KeyChoice,
	choose func() (*subject, error),
) (*orders.Answer, error) {
	for range maxRounds {
		if err := k.within(ctx, of); err != nil {
			return nil, err
		}
		s, err := choose()
		if err != nil {
			return nil, err
		}
		if a, err := k.answer(ctx, v, s); !errors.Is(err, trust.ErrConflict) {
			return a, err
		}
	}
	return nil, fmt.Errorf("%w, %d times in a row", trust.ErrConflict, maxRounds)
}

// answer writes, applies and reports a verdict. A repeated order completes it. The error is [trust.ErrConflict] if
// another verdict was written since the choice.
func (k *Keys) answer(ctx context.Context, v verdict, s *subject) (*orders.Answer, error) {
	newest, after := k.logs.Answers.Of(s.Identity, s.KeyHash) // an unreadable answer is a rejection
	if newest != nil && newest.Verdict == orders.VerdictReject && (s.rejection == nil || s.rejection.ID != newest.ID) {
		return nil, trust.ErrConflict
	}
	a := &orders.Answer{
		Schema:   orders.AnswerSchema,
		ID:       wire.NewID(),
		Identity: s.Identity,
		KeyHash:  s.KeyHash,
		Site:     s.Site,
		Verdict:  v.Verdict,
		At:       k.now(),
		Cause:    v.cause,
	}
	var listed trust.Revision
	var err error
	if v.Verdict == orders.VerdictApprove {
		err = k.approval(ctx, a, v.ttl, s)
	} else if _, listed, err = k.store.Waiter(ctx, s.Identity, s.KeyHash); errors.Is(err, trust.ErrRecord) {
		err = nil // read before the verdict is written, so a request that comes after it is not dropped
	}
	if err != nil {
		return nil, err
	}
	said := verdicts[v.Verdict]
	e := k.event(said.event, v.cause)
	e.Node, e.Key = string(a.Identity), a.KeyHash
	if _, err := k.logs.Answers.Put(ctx, a.LogKey(), a, after); err != nil {
		return nil, err
	}
	k.report(ctx, said.message, e, "node", a.Identity, "key", a.KeyHash, "until", a.ExpiresAt)
	if listed == 0 {
		return a, nil
	}
	if err := k.store.DropWaiter(ctx, s.Identity, s.KeyHash, listed); err != nil {
		if v.Verdict == orders.VerdictNone {
			return nil, fmt.Errorf("the verdict on the key is forgotten, but the key is still on the pending list: %w",
				err)
		}
		k.log.WarnContext(ctx, "rejected key is still on the pending list", "node", a.Identity, "key", a.KeyHash, "err",
			err)
	}
	return a, nil
}

// approval makes the times later than the entries it follows, even if a fast clock wrote those.
func (k *Keys) approval(ctx context.Context, a *orders.Answer, ttl time.Duration, s *subject) error {
	a.ExpiresAt = a.At.Add(ttl)
	r, _, err := k.store.Record(ctx, a.Identity)
	if err != nil {
		return err
	}
	after := time.Time{}
	if newest, _ := k.provisioner.Revocations().About(a.Identity); newest != nil {
		after = newest.At
	}
	if r != nil && r.Approval != nil && r.Approval.At.After(after) {
		after = r.Approval.At
	}
	if !a.At.After(after) {
		a.At = after.Add(time.Second)
	}
	err = k.letsIn(ctx, a)
	if errors.Is(err, trust.ErrState) && s.rejection != nil {
		err = fmt.Errorf("%w; the key stays rejected until `muster node forget %s --fingerprint %s`", err, a.Identity,
			a.KeyHash)
	}
	return err
}

// letsIn returns [trust.ErrState] if the approval would have no effect.
func (k *Keys) letsIn(ctx context.Context, a *orders.Answer) error {
	if by := k.provisioner.Revocations().Key(a.KeyHash); by != nil {
		return fmt.Errorf("%w: the key: %w", trust.ErrState, by.Err())
	}
	code, err := k.foresee(ctx, a)
	switch code {
	case wire.CodeIdentityRevoked:
		return errNameRevoked(a.Identity)
	case wire.CodeIdentityTaken:
		return errKeepsName(a.Identity, a.KeyHash)
	}
	return err
}
