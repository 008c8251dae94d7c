package provisioner

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"muster/internal/wire"
)

// AllowanceSchema is the version of an allowance's JSON form.
const AllowanceSchema = 1

// MaxAllowanceUses bounds the uses of one allowance, which is written whole with
// those that come together: 1,000 are 150 KB.
const MaxAllowanceUses = 1000

// An Allowance is an entry of the allow-list in the store: names that may enroll
// without having been seen before, on every provisioner.
type Allowance struct {
	Schema    int          `json:"schema"`
	ID        string       `json:"id"` // of this version: one that replaces it has another
	Pattern   wire.Pattern `json:"pattern"`
	ExpiresAt time.Time    `json:"expires_at,omitzero"` // zero: never
	Uses      int          `json:"uses,omitempty"`      // how many names it lets in; 0 is no limit
	At        time.Time    `json:"at"`
	Removed   bool         `json:"removed,omitempty"`
	Cause

	// UsedBy are the names that a limited one has let in, with their keys. A name
	// is on it before its record is written: a use whose node died stays spent.
	UsedBy []AllowanceUse `json:"used_by,omitempty"`
}

// An AllowanceUse is one of the uses of an allowance.
type AllowanceUse struct {
	Identity wire.Identity `json:"identity"`
	KeyHash  string        `json:"key_hash"`
	At       time.Time     `json:"at"`
}

// AllowanceID names the place of a pattern's allowance: there is one for each.
func AllowanceID(p wire.Pattern) string {
	sum := sha256.Sum256([]byte(p))
	return hex.EncodeToString(sum[:16])
}

// Check reports what about an allowance cannot be.
func (a *Allowance) Check() error {
	if a.Schema != AllowanceSchema {
		return fmt.Errorf("allow-list entry %q: schema %d, want %d", a.Pattern, a.Schema, AllowanceSchema)
	}
	if _, err := wire.ParsePattern(string(a.Pattern)); err != nil {
		return fmt.Errorf("allow-list entry: %w", err)
	}
	if a.ID == "" || a.Uses < 0 || a.Uses > MaxAllowanceUses || len(a.UsedBy) > a.Uses {
		return fmt.Errorf("allow-list entry %q: id %.80q, %d of %d uses, limit %d", a.Pattern, a.ID, len(a.UsedBy), a.Uses, MaxAllowanceUses)
	}
	return a.Cause.Check()
}

// Journaled returns the entry as a [Journal] has it: who has used it is the
// store's to know.
func (a *Allowance) Journaled() *Allowance {
	j := *a
	j.UsedBy = nil
	return &j
}

// Restored returns what an entry of the journal is in a store that has forgotten
// it: nobody knows how many uses of a limited one were taken, so it is removed.
func (a *Allowance) Restored() *Allowance {
	r := *a
	r.Removed = a.Removed || a.Uses > 0
	return &r
}

// usedBy reports whether the key has used it for the identity.
func (a *Allowance) usedBy(h holder) bool {
	return slices.ContainsFunc(a.UsedBy, func(u AllowanceUse) bool { return u.Identity == h.identity && u.KeyHash == h.key })
}

// over reports whether it was removed, or has expired by now. One that is used up
// is not over: those who used it still may.
func (a *Allowance) over(now time.Time) bool {
	return a.Removed || !a.ExpiresAt.IsZero() && !now.Before(a.ExpiresAt)
}

// admits reports whether it covers a key's identity at now.
func (a *Allowance) admits(h holder, now time.Time) bool {
	return !a.over(now) && (a.Uses == 0 || len(a.UsedBy) < a.Uses || a.usedBy(h)) &&
		a.Pattern.Match(h.identity)
}

// An AllowanceStore keeps the allow-list that all provisioners share.
type AllowanceStore interface {
	// Allowance returns the newest entry of a pattern, or nil and 0. The error wraps
	// [ErrUnread] if that cannot be read; its revision is returned all the same.
	Allowance(ctx context.Context, p wire.Pattern) (*Allowance, Revision, error)

	// PutAllowance writes an entry under compare-and-set, or returns [ErrConflict].
	// After any other error it may be written or may yet be.
	PutAllowance(ctx context.Context, a *Allowance, after Revision) error

	// NextAllowance returns the first entry after the given place, or nil and 0. Of
	// several about one pattern, the last one counts. One that cannot be read comes as
	// one that is removed, with an error that wraps [ErrUnread]; its ID is then the
	// [AllowanceID] of its pattern, which is not known.
	NextAllowance(ctx context.Context, after Sequence) (*Allowance, Sequence, error)

	// Allowances calls each for what NextAllowance would return, as [AnswerStore].Answers does.
	Allowances(ctx context.Context, after Sequence, each func(a *Allowance, at Sequence, unread error) error) error
}

// errUsedAgain says that an allow-list entry is not good for a use any more: it is decided
// anew, without it.
var errUsedAgain = fmt.Errorf("%w: the allow-list entry is used up, removed or over", errAgain)

// takeAllowance has the attempt use the limited allowance that let it in, before
// its record is written: of any number of attempts on any number of
// provisioners at most so many names get in, since each use is written over the
// count that it was decided on.
//
// The process may die behind it: the same key asking again has its use already.
func (p *Provisioner) takeAllowance(ctx context.Context, a *attempt) error {
	if a.allowance == nil || a.allowance.Uses == 0 || a.reason != ReasonNew {
		return nil
	}
	us, pattern := &p.allowances.uses, a.allowance.Pattern
	u := &pendingUse{AllowanceUse: AllowanceUse{Identity: a.identity, KeyHash: a.csr.KeyHash, At: p.now()}, entry: a.allowance.ID}
	us.join(pattern, u)
	defer us.leave(pattern, u)
	unlock, err := us.turns.lock(ctx, pattern, nil)
	if err != nil {
		return refuse(string(a.identity), wire.CodeBusy, err)
	}
	defer unlock()
	if !u.settled { // by who had the turn before
		err = p.writeUses(ctx, pattern)
	}
	if u.settled {
		err = u.err
	}
	switch {
	case err == nil, errors.Is(err, errAgain):
		return err
	case errors.Is(err, ErrConflict):
		return refuse(string(a.identity), wire.CodeBusy, err)
	}
	return refuse(string(a.identity), p.storeCode(err), err)
}
