package provisioner

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"muster/internal/wire"
	"muster/provisioner/events"
)

// AnswerSchema is the version of an answer's JSON form.
const AnswerSchema = 1

// Bounds of an approval's life.
const (
	DefaultApprovalTTL = 24 * time.Hour     // chosen: a machine that is switched on tomorrow
	MaxApprovalTTL     = 7 * 24 * time.Hour // an open door should not be forgotten
)

// minKeyPrefix is how much of a key's hash an operator must give at least, in
// hex digits; chosen: short enough to read out, and no two of the few keys that
// wait for one name share it by accident.
const minKeyPrefix = 8

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
	Cause
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
	if a.ID == "" || !isSHA256(a.KeyHash) {
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

// Open reports whether the time of an approval is not over at now. One that would be open
// for longer than any may be was given by a clock that was ahead: it lets nobody in.
func (a *Answer) Open(now time.Time) bool {
	return now.Before(a.ExpiresAt) && !toCome(a.ExpiresAt.Add(-MaxApprovalTTL), now)
}

// LogKey is the key of the log's entries about this key.
func (a *Answer) LogKey() string { return answerKey(holder{a.KeyHash, a.Identity}) }

func answerKey(h holder) string { return h.identity.SubjectToken() + "." + h.key }

// approved answers the policy's question for a person.
func (p *Provisioner) approved(ctx context.Context, a *attempt) error {
	node := string(a.identity)
	if r := a.record; a.reason == ReasonReplay && r.Approval != nil && r.Approval.KeyHash == a.csr.KeyHash {
		return nil
	}
	if a.record != nil { // which may say that the name was taken away before we have seen by what
		if err := p.revocations.upTo(ctx, a.record.RevokedThrough); err != nil {
			return refuse(node, wire.CodeRevocationsUnknown, err)
		}
	}
	if answer := p.approval(a.identity, a.csr.KeyHash, a.record, a.reason); answer != nil {
		a.approval = answer
		return nil
	}
	if p.cfg.Autosign == nil {
		return refuse(node, wire.CodeApprovalPending, because(a.decision))
	}
	if err := p.cfg.Autosign(ctx, a.identity, a.request.CSR); err != nil {
		return refuse(node, wire.CodeApprovalPending, errors.Join(because(a.decision), err))
	}
	a.approval = &Answer{ID: wire.NewID(), Cause: Cause{By: AutosignBy}}
	return nil
}

// approval returns the approval that lets a key have the identity of r, which may be nil, on
// the ground of reason; nil if there is none.
func (p *Provisioner) approval(id wire.Identity, keyHash string, r *Record, reason Reason) *Answer {
	if answer, _ := p.answers.of(holder{keyHash, id}); p.counts(answer, r, reason) {
		return answer
	}
	return nil
}

// Approval returns the approval that answers for a key which waits for one when it asks again;
// nil if there is none that counts, see [Provisioner.Foresee]. It reads the store a few times.
func (p *Provisioner) Approval(ctx context.Context, w *Waiter) (*Answer, error) {
	if w.Code != wire.CodeApprovalPending {
		return nil, nil
	}
	record, _, err := p.cfg.Store.Record(ctx, w.Identity)
	if err != nil {
		return nil, err
	}
	answer := p.approval(w.Identity, w.KeyHash, record, "") // a node that asks again for what it has does not wait
	if answer == nil {
		return nil, nil
	}
	if err := p.letsIn(ctx, answer, record); errors.Is(err, ErrState) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	return answer, nil
}

// letsIn returns [ErrState] if an approval lets nobody in, since the name of r, which may be
// nil, or the key is revoked, or another key has the name: see [Provisioner.Foresee]. What
// cannot be said now may come.
func (p *Provisioner) letsIn(ctx context.Context, a *Answer, r *Record) error {
	if by := p.revocations.Key(a.KeyHash); by != nil {
		return fmt.Errorf("%w: the key: %w", ErrState, by.cause())
	}
	grant, _, err := p.logs.Grant(a.Identity)
	if err != nil {
		return err
	}
	switch p.Foresee(ctx, a, r, grant) {
	case wire.CodeIdentityRevoked:
		return fmt.Errorf("%w: the name is revoked; if this machine is to have it, `muster node retire %s` first, which frees the name", ErrState, a.Identity)
	case wire.CodeIdentityTaken:
		return errKeepsName(a.Identity, a.KeyHash)
	}
	return nil
}

// errKeepsName says that an approval gives nobody a name that another key has.
func errKeepsName(id wire.Identity, keyHash string) error {
	return fmt.Errorf("%w: the name belongs to another key; if this machine is to have it, `muster node grant %s --key %s`", ErrState, id, keyHash)
}

// AutosignBy is who approved what the operators' command did.
const AutosignBy = "autosign"

// ErrNotWaiting means that nobody waits under a name, or not with the key.
var ErrNotWaiting = errors.New("nobody waits under this name")

// CheckKeyPrefix says what about the hash of a key, or its beginning, cannot be;
// empty is good where only one key waits.
func CheckKeyPrefix(key string) error {
	if key != "" && (len(key) < minKeyPrefix || len(key) > 64 || strings.Trim(key, "0123456789abcdef") != "") {
		return fmt.Errorf("key %.80q, want %d to 64 lower-case hex digits of its SHA-256", key, minKeyPrefix)
	}
	return nil
}

// waiterNamed returns the one key that waits for the identity and whose hash
// begins with key, which may be empty.
func (p *Provisioner) waiterNamed(ctx context.Context, id wire.Identity, key string) (*Waiter, error) {
	if err := wrong(CheckKeyPrefix(key)); err != nil {
		return nil, err
	}
	waiting, err := p.Waiting(ctx, id)
	if err != nil {
		return nil, err
	}
	var found []*Waiter
	var keys []string
	for _, w := range waiting {
		keys = append(keys, events.Cut(w.KeyHash, 2*minKeyPrefix))
		if strings.HasPrefix(w.KeyHash, key) {
			found = append(found, w)
		}
	}
	switch {
	case len(waiting) == 0:
		if rejected := p.answers.rejectedKeys(id); len(rejected) > 0 {
			return nil, fmt.Errorf("%w; a key of it was rejected, which is meant by --key %s", ErrNotWaiting, strings.Join(rejected, " or "))
		}
		if p.revocations.outstanding(id, nil) != nil { // whoever asks for it may have been told to wait, as for a free one
			return nil, fmt.Errorf("%w, for it is revoked; if a machine is to have it, `muster node retire %s` first, which frees the name", ErrNotWaiting, id)
		}
		return nil, fmt.Errorf("%w: `muster node pending` lists who does", ErrNotWaiting)
	case len(found) == 0:
		return nil, fmt.Errorf("%w with key %s; waiting with %s", ErrNotWaiting, key, strings.Join(keys, ", "))
	case len(found) > 1:
		return nil, fmt.Errorf("%w: %d keys wait under this name, say which one you mean with --key: %s", ErrState, len(found), strings.Join(keys, ", "))
	}
	return found[0], nil
}

// A ShownKey is a key as it was shown to somebody who says a verdict about it: waiting, or
// rejected by the verdict that was shown.
type ShownKey struct {
	Identity wire.Identity
	KeyHash  string // 64 hex digits

	Rejected  bool   // it was shown as rejected
	Rejection string // with it: [Answer.ID] of that; empty is of one that could not be read
}

// meant is the key that a verdict is about, and the rejection that is known to be lifted by
// it: nil if it is not rejected.
type meant struct {
	*Waiter
	rejection *Answer
}

// rejectedKey is a key that is on no list any more.
func rejectedKey(by *Answer) *meant {
	return &meant{&Waiter{Identity: by.Identity, KeyHash: by.KeyHash, Code: wire.CodeRejected}, by}
}

// named returns the key of an identity that is named by its hash, rejected or waiting, or
// the one that waits.
func (p *Provisioner) named(ctx context.Context, id wire.Identity, key string) (*meant, error) {
	if a := p.answers.rejectedNamed(id, key); a != nil {
		return rejectedKey(a), nil
	}
	w, err := p.waiterNamed(ctx, id, key)
	return &meant{Waiter: w}, err
}

// asShown returns a key, unless it was rejected since it was shown.
func (p *Provisioner) asShown(ctx context.Context, k ShownKey) (*meant, error) {
	if err := wrong(CheckKeyHash(k.KeyHash)); err != nil {
		return nil, err
	}
	by := p.answers.rejection(holder{k.KeyHash, k.Identity})
	switch {
	case by == nil:
		w, err := p.waiterNamed(ctx, k.Identity, k.KeyHash)
		return &meant{Waiter: w}, err
	case !k.Rejected || k.Rejection != by.ID:
		return nil, fmt.Errorf("%w: its key was rejected since it was shown to you, %s", ErrState, by.rejection())
	}
	return rejectedKey(by), nil
}

// ApproveNode lets the key that waits for the identity in, once, within ttl,
// which is [DefaultApprovalTTL] if 0 and [MaxApprovalTTL] at most. key is the
// hash of that key or its beginning, and may be empty if only one waits. The
// approval answers the policy where it asks for one: what it denies or defers
// stays so.
//
// The process may die after the write: the node gets in with its next try.
// Asking again replaces the approval by another one, and of two only one can be
// spent. The error is [ErrNotWaiting], or [ErrState] if another key has the name, if name or key
// is revoked, or if several wait.
func (p *Provisioner) ApproveNode(ctx context.Context, id wire.Identity, key string, ttl time.Duration, c Cause) (*Answer, error) {
	if ttl == 0 {
		ttl = DefaultApprovalTTL
	}
	return p.approve(ctx, id, ttl, c, func() (*meant, error) { return p.named(ctx, id, key) })
}

// ApproveShown is [Provisioner.ApproveNode] about a key as it was shown. A rejection that
// was not shown stays, and is [ErrState].
func (p *Provisioner) ApproveShown(ctx context.Context, k ShownKey, ttl time.Duration, c Cause) (*Answer, error) {
	if ttl == 0 {
		ttl = DefaultApprovalTTL
	}
	return p.approve(ctx, k.Identity, ttl, c, func() (*meant, error) { return p.asShown(ctx, k) })
}

// approve lets the key in that choose returns, if an approval is what that waits for.
func (p *Provisioner) approve(ctx context.Context, id wire.Identity, ttl time.Duration, c Cause, choose func() (*meant, error)) (*Answer, error) {
	err := c.Check()
	if ttl < time.Minute || ttl > MaxApprovalTTL {
		err = errors.Join(err, fmt.Errorf("for %v, want 1m to %v", ttl, MaxApprovalTTL))
	}
	if err := wrong(err); err != nil {
		return nil, fmt.Errorf("approve %q: %w", id, err)
	}
	a, err := p.verdict(ctx, VerdictApprove, ttl, c, func() (*meant, error) {
		m, err := choose()
		if err == nil {
			err = approvable(m.Waiter)
		}
		return m, err
	})
	if err != nil {
		return nil, fmt.Errorf("approve %q: %w", id, err)
	}
	return a, nil
}

// approvable returns an error if an approval is not what the key waits for.
func approvable(w *Waiter) error {
	switch w.Code {
	case wire.CodeIdentityTaken:
		return errKeepsName(w.Identity, w.KeyHash)
	case wire.CodeDeferred:
		return fmt.Errorf("%w: the policy puts it off, and asks nobody: %s", ErrState, strings.Join(w.Reasons, "; "))
	}
	return nil
}

// RejectNode keeps the key that waits for the identity out, whatever policy,
// allow-list and tokens say, until it is approved or forgotten. key is as in
// [Provisioner.ApproveNode]. It is in force on every provisioner within a second
// or two. The error is [ErrNotWaiting], or [ErrState] if several wait.
//
// Asking again, since the answer was lost, is harmless: a key that is rejected
// already stays so, and nothing is written.
func (p *Provisioner) RejectNode(ctx context.Context, id wire.Identity, key string, c Cause) (*Answer, error) {
	if err := wrong(c.Check()); err != nil {
		return nil, fmt.Errorf("reject %q: %w", id, err)
	}
	var before *Answer // which was asked for again, or by somebody else as well
	a, err := p.verdict(ctx, VerdictReject, 0, c, func() (*meant, error) {
		w, err := p.waiterNamed(ctx, id, key)
		if errors.Is(err, ErrNotWaiting) {
			before = p.answers.rejectedOnly(id, key)
		}
		return &meant{Waiter: w}, err
	})
	if before != nil {
		return before, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reject %q: %w", id, err)
	}
	return a, nil
}

// ForgetNode takes the key that waits for the identity off the list, and what
// was said of it with it, approval or rejection: if it asks again, it waits
// again, listed by whichever provisioner it asks. key is as in
// [Provisioner.ApproveNode]; where nobody waits and one key of the name was
// rejected, that is meant by none as well. The error is [ErrNotWaiting], or
// [ErrState] if several wait.
//
// The process may die at any step, and asking again is harmless: what was said of
// the key goes first, since one that is on the list can be named again.
func (p *Provisioner) ForgetNode(ctx context.Context, id wire.Identity, key string, c Cause) (*Answer, error) {
	return p.forget(ctx, id, c, func() (*meant, error) {
		m, err := p.named(ctx, id, key)
		if only := p.answers.rejectedOnly(id, ""); errors.Is(err, ErrNotWaiting) && key == "" && only != nil {
			return rejectedKey(only), nil
		}
		return m, err
	})
}

// ForgetShown is [Provisioner.ForgetNode] about a key as it was shown. A rejection that was
// not shown stays, and is [ErrState].
func (p *Provisioner) ForgetShown(ctx context.Context, k ShownKey, c Cause) (*Answer, error) {
	return p.forget(ctx, k.Identity, c, func() (*meant, error) { return p.asShown(ctx, k) })
}

// forget has nothing said of the key that choose returns.
func (p *Provisioner) forget(ctx context.Context, id wire.Identity, c Cause, choose func() (*meant, error)) (*Answer, error) {
	if err := wrong(c.Check()); err != nil {
		return nil, fmt.Errorf("forget %q: %w", id, err)
	}
	a, err := p.verdict(ctx, VerdictNone, 0, c, choose)
	if err != nil {
		return nil, fmt.Errorf("forget %q: %w", id, err)
	}
	return a, nil
}

// verdict says v about the key that choose returns by what was said so far, and chooses
// again if somebody else says something of the key meanwhile: nobody lifts a rejection that
// they do not know of.
func (p *Provisioner) verdict(ctx context.Context, v Verdict, ttl time.Duration, c Cause, choose func() (*meant, error)) (*Answer, error) {
	for range maxRounds {
		m, err := choose()
		if err != nil {
			return nil, err
		}
		if a, err := p.answer(ctx, v, m, ttl, c); !errors.Is(err, ErrConflict) {
			return a, err
		}
	}
	return nil, fmt.Errorf("%w, %d times in a row", ErrConflict, maxRounds)
}

// answer writes a verdict, puts it in force in this process and reports it. Who
// is forgotten is off the list when it returns nil. Every step may be the last:
// what was not done is done when it is asked for again, and who is rejected is
// taken off by whoever lists who waits. The error is [ErrConflict] if the key is rejected
// by another verdict than when it was chosen, or if something else was said of it just now.
func (p *Provisioner) answer(ctx context.Context, v Verdict, w *meant, ttl time.Duration, c Cause) (*Answer, error) {
	newest, after := p.answers.of(w.holder()) // one that cannot be read is a rejection
	if newest != nil && newest.Verdict == VerdictReject && (w.rejection == nil || w.rejection.ID != newest.ID) {
		return nil, ErrConflict
	}
	a := &Answer{Schema: AnswerSchema, ID: wire.NewID(), Identity: w.Identity, KeyHash: w.KeyHash, Verdict: v, At: p.now(), Cause: c}
	if v == VerdictApprove {
		a.ExpiresAt = a.At.Add(ttl)
		r, _, err := p.cfg.Store.Record(ctx, w.Identity)
		if err != nil {
			return nil, err
		}
		if r != nil && r.Approval != nil && !a.At.After(r.Approval.At) {
			a.At = r.Approval.At.Add(time.Second) // by a clock that is ahead of ours, or was
		}
		if out := p.revocations.standing(w.Identity); out.Revocation != nil && !a.At.After(out.At) {
			a.At = out.At.Add(time.Second)
		}
		err = p.letsIn(ctx, a, r)
		if errors.Is(err, ErrState) && w.rejection != nil {
			err = fmt.Errorf("%w; and its key stays rejected, until `muster node forget %s --key %s`", err, w.Identity, w.KeyHash)
		}
		if err != nil {
			return nil, err
		}
	}
	var listed Revision
	var err error
	if v != VerdictApprove {
		// As of before the verdict: a provisioner that has read that lists who asks.
		if _, listed, err = p.cfg.Store.Waiter(ctx, w.Identity, w.KeyHash); err != nil && !errors.Is(err, ErrRecord) {
			return nil, err
		}
	}
	said := p.moment()
	if _, err := p.logs.Answers.Put(ctx, a.LogKey(), a, after); err != nil {
		return nil, err
	}
	p.tellAnswer(ctx, a, said)
	p.waiters.forget(w.holder())
	if listed > 0 {
		if err := p.cfg.Store.DropWaiter(ctx, w.Identity, w.KeyHash, listed); err != nil {
			if v == VerdictNone {
				return nil, fmt.Errorf("what was said of its key is forgotten, and it is still on the list: %w", err)
			}
			p.cfg.Log.WarnContext(ctx, "rejected node still on the list", "node", a.Identity, "key", a.KeyHash, "err", err)
		}
	}
	return a, nil
}

// tellAnswer emits the event of a verdict that is in the store.
func (p *Provisioner) tellAnswer(ctx context.Context, a *Answer, said time.Time) {
	e := events.Event{Time: said, Node: string(a.Identity), Key: a.KeyHash, By: a.By, Why: a.Why}
	switch a.Verdict {
	case VerdictApprove:
		e.Type = events.Approved
		p.cfg.Log.InfoContext(ctx, "node approved", "node", a.Identity, "key", a.KeyHash, "by", a.By, "why", a.Why, "until", a.ExpiresAt)
	case VerdictReject:
		e.Type = events.Rejected
		p.cfg.Log.InfoContext(ctx, "node rejected", "node", a.Identity, "key", a.KeyHash, "by", a.By, "why", a.Why)
	case VerdictNone:
		e.Type = events.Forgotten
		p.cfg.Log.InfoContext(ctx, "node forgotten", "node", a.Identity, "key", a.KeyHash, "by", a.By, "why", a.Why)
	}
	p.cfg.Emit(e)
}
