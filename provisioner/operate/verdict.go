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

// DefaultApprovalTTL is how long an approval lets its key in: for a machine that is switched on tomorrow.
const DefaultApprovalTTL = 24 * time.Hour

// A KeyChoice says which key an order is about: one that is named, see [Named], or one as the operator was shown it.
type KeyChoice struct {
	Identity wire.Identity
	Key      string // its hash; of a key that is named also the beginning, or nothing if only one waits

	// Shown is that the key was on a list, waiting, or rejected by the verdict that was shown: a rejection since then
	// stays, and is [trust.ErrState].
	Shown     bool
	Rejected  bool
	Rejection string // the id of that verdict; empty is of one that could not be read
}

// Named is the key of an identity whose hash begins with key, which may be empty if only one waits.
func Named(id wire.Identity, key string) KeyChoice { return KeyChoice{Identity: id, Key: key} }

// subject is the key that a verdict is about, and the rejection that the verdict lifts: nil if the key is not rejected.
type subject struct {
	*waiting.Key
	rejection *orders.Answer
}

// rejectedKey is a key that is no longer on the list.
func rejectedKey(by *orders.Answer) *subject {
	return &subject{
		&waiting.Key{Identity: by.Identity, KeyHash: by.KeyHash, Code: wire.CodeRejected},
		by,
	}
}

// choose returns the key that is meant: rejected or waiting.
func (k *Keys) choose(ctx context.Context, c KeyChoice) (*subject, error) {
	if c.Shown {
		return k.asShown(ctx, c)
	}
	if len(c.Key) >= minKeyPrefix {
		if a := k.rejectedOnly(c.Identity, c.Key); a != nil {
			return rejectedKey(a), nil
		}
	}
	w, err := k.waiterNamed(ctx, c.Identity, c.Key)
	return &subject{Key: w}, err
}

// asShown returns a key, unless it was rejected since it was shown.
func (k *Keys) asShown(ctx context.Context, c KeyChoice) (*subject, error) {
	if err := wrong(trust.CheckKeyHash(c.Key)); err != nil {
		return nil, err
	}
	by := k.logs.Answers.Rejection(c.Identity, c.Key)
	switch {
	case by == nil:
		w, err := k.waiterNamed(ctx, c.Identity, c.Key)
		return &subject{Key: w}, err
	case !c.Rejected || c.Rejection != by.ID:
		return nil, fmt.Errorf("%w: its key was rejected since it was shown to you, %s", trust.ErrState, by.Source())
	}
	return rejectedKey(by), nil
}

// Approve lets a key that waits in, once, within ttl, which is [DefaultApprovalTTL] if 0 and [orders.MaxApprovalTTL] at
// most. The approval answers the policy where it asks for one: what it denies or defers stays so.
//
// Asking again replaces the approval by another one, and of two only one can be spent. The error is [ErrNotWaiting], or
// [trust.ErrState] if another key has the name, if name or key is revoked, or if several wait.
func (k *Keys) Approve(ctx context.Context, of KeyChoice, ttl time.Duration, c trust.Cause) (_ *orders.Answer, err error) {
	defer about(&err, "approve %q", of.Identity)
	ttl = cmp.Or(ttl, DefaultApprovalTTL)
	err = c.Check()
	if ttl < time.Minute || ttl > orders.MaxApprovalTTL {
		err = errors.Join(err, fmt.Errorf("for %v, want 1m to %v", ttl, orders.MaxApprovalTTL))
	}
	if err := wrong(err); err != nil {
		return nil, err
	}
	return k.decide(ctx, verdict{orders.VerdictApprove, ttl, c}, func() (*subject, error) {
		s, err := k.choose(ctx, of)
		if err == nil {
			err = approvable(s.Key)
		}
		return s, err
	})
}

// approvable returns an error if an approval is not what the key waits for.
func approvable(w *waiting.Key) error {
	switch w.Code {
	case wire.CodeIdentityTaken:
		return errKeepsName(w.Identity, w.KeyHash)
	case wire.CodeDeferred:
		return fmt.Errorf("%w: the policy puts it off, and asks for no approval: %s", trust.ErrState, strings.Join(w.Reasons, "; "))
	}
	return nil
}

// errKeepsName says that an approval gives no key a name that another key has.
func errKeepsName(id wire.Identity, keyHash string) error {
	return fmt.Errorf("%w: the name belongs to another key; if this machine is to have it, `muster node grant %s --key %s`",
		trust.ErrState, id, keyHash)
}

// Reject keeps a key that waits out, whatever policy, allow-list and tokens say, until it is approved or forgotten. It is
// in force on every provisioner within a second or two. The error is [ErrNotWaiting], or [trust.ErrState] if several
// wait.
//
// Asking again is harmless: a key that is rejected already stays so, and nothing is written.
func (k *Keys) Reject(ctx context.Context, of KeyChoice, c trust.Cause) (_ *orders.Answer, err error) {
	defer about(&err, "reject %q", of.Identity)
	if err := wrong(c.Check()); err != nil {
		return nil, err
	}
	var before *orders.Answer
	a, err := k.decide(ctx, verdict{orders.VerdictReject, 0, c}, func() (*subject, error) {
		w, err := k.waiterNamed(ctx, of.Identity, of.Key)
		if errors.Is(err, ErrNotWaiting) {
			before = k.rejectedOnly(of.Identity, of.Key)
		}
		return &subject{Key: w}, err
	})
	if before != nil {
		return before, nil
	}
	return a, err
}

// Forget takes a key that waits off the list, and what was decided about it with it, approval or rejection: if it asks
// again, it waits again. Where no key waits and one key of the name was rejected, an empty key means that one. The error
// is [ErrNotWaiting], or [trust.ErrState] if several wait.
//
// The process may die at any step, and asking again is harmless: the verdict goes first, since a key that is on the list
// can be named again.
func (k *Keys) Forget(ctx context.Context, of KeyChoice, c trust.Cause) (_ *orders.Answer, err error) {
	defer about(&err, "forget %q", of.Identity)
	if err := wrong(c.Check()); err != nil {
		return nil, err
	}
	return k.decide(ctx, verdict{orders.VerdictNone, 0, c}, func() (*subject, error) {
		s, err := k.choose(ctx, of)
		if errors.Is(err, ErrNotWaiting) && of.Key == "" {
			if only := k.rejectedOnly(of.Identity, ""); only != nil {
				return rejectedKey(only), nil
			}
		}
		return s, err
	})
}

// verdicts are what is said of verdicts in events and in the log.
var verdicts = map[orders.Verdict]struct {
	event   events.Type
	message string
}{
	orders.VerdictApprove: {events.Approved, "node approved"},
	orders.VerdictReject:  {events.Rejected, "node rejected"},
	orders.VerdictNone:    {events.Forgotten, "node forgotten"},
}

// verdict is what an operator says of a key.
type verdict struct {
	orders.Verdict
	ttl   time.Duration // of an approval
	cause trust.Cause
}

// maxRounds bounds how often an order is decided anew because other processes write first.
const maxRounds = 8

// decide says a verdict about the key that choose returns, and chooses again if another verdict about the key is written
// meanwhile: an order lifts no rejection that its operator did not know of.
func (k *Keys) decide(ctx context.Context, v verdict, choose func() (*subject, error)) (*orders.Answer, error) {
	for range maxRounds {
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

// answer writes a verdict, puts it in force in this process and reports it. A key that is forgotten is off the list when
// it returns nil. Every step may be the last: what was not done is done when it is asked for again, and a rejected key is
// taken off by [Keys.Waiting]. The error is [trust.ErrConflict] if the key is rejected by another verdict than when
// it was chosen, or if another verdict was written meanwhile.
func (k *Keys) answer(ctx context.Context, v verdict, s *subject) (*orders.Answer, error) {
	newest, after := k.logs.Answers.Of(s.Identity, s.KeyHash) // one that cannot be read is a rejection
	if newest != nil && newest.Verdict == orders.VerdictReject && (s.rejection == nil || s.rejection.ID != newest.ID) {
		return nil, trust.ErrConflict
	}
	a := &orders.Answer{
		Schema:   orders.AnswerSchema,
		ID:       wire.NewID(),
		Identity: s.Identity,
		KeyHash:  s.KeyHash,
		Verdict:  v.Verdict,
		At:       k.now(),
		Cause:    v.cause,
	}
	var listed trust.Revision
	var err error
	if v.Verdict == orders.VerdictApprove {
		err = k.approval(ctx, a, v.ttl, s)
	} else if _, listed, err = k.store.Waiter(ctx, s.Identity, s.KeyHash); errors.Is(err, trust.ErrRecord) {
		err = nil // read before the verdict: a provisioner that has read the verdict lists the key's next request
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
			return nil, fmt.Errorf("what was said of its key is forgotten, and it is still on the list: %w", err)
		}
		k.log.WarnContext(ctx, "rejected node still on the list", "node", a.Identity, "key", a.KeyHash, "err", err)
	}
	return a, nil
}

// approval completes an approval: its times come after what it follows, also if that was written by a clock that was
// ahead. The error is [trust.ErrState] if it would let the key in by nothing.
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
		err = fmt.Errorf("%w; and its key stays rejected, until `muster node forget %s --key %s`", err, a.Identity, a.KeyHash)
	}
	return err
}

// letsIn returns [trust.ErrState] if an approval lets no key in, since the name or the key is revoked, or another
// key has the name: see [provisioner.Provisioner.Forecast].
func (k *Keys) letsIn(ctx context.Context, a *orders.Answer) error {
	if by := k.provisioner.Revocations().Key(a.KeyHash); by != nil {
		return fmt.Errorf("%w: the key: %w", trust.ErrState, by.Err())
	}
	code, err := k.foresee(ctx, a)
	switch code {
	case wire.CodeIdentityRevoked:
		return fmt.Errorf("%w: the name is revoked; if this machine is to have it, `muster node retire %s` first, which frees the name",
			trust.ErrState, a.Identity)
	case wire.CodeIdentityTaken:
		return errKeepsName(a.Identity, a.KeyHash)
	}
	return err
}
