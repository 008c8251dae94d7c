package trust

import (
	"cmp"
	"context"
	"slices"
	"time"

	"muster/internal/wire"
	"muster/jwt"
)

// A UseState is the state of a token's use.
type UseState string

// The states of a use.
const (
	UseEnrolled UseState = "enrolled" // the key is or was on the record
	UseClaimed  UseState = "claimed"  // no certificate on record; an operator may release it
	UseReleased UseState = "released"
)

// A TokenUse is one key's use of a token for one identity.
type TokenUse struct {
	Key        string        `json:"key"` // [ca.KeyHash]
	Identity   wire.Identity `json:"identity"`
	State      UseState      `json:"state"`
	At         time.Time     `json:"at"` // of the first claim; without a limit, of the record's change
	Source     string        `json:"source,omitempty"`
	ReleasedAt time.Time     `json:"released_at,omitzero"`
	ReleasedBy string        `json:"released_by,omitempty"` // operator; empty if the refused attempt gave it back
	Why        string        `json:"why,omitempty"`
}

// A Use is a [TokenUse] with its claims.
type Use struct {
	TokenUse

	claims []TokenClaim // not released
}

// Held reports whether a claim is not released.
func (u *Use) Held() bool { return len(u.claims) > 0 }

// Claimed returns the time of the newest claim, or zero.
func (u *Use) Claimed() (newest time.Time) {
	for _, c := range u.claims {
		if c.At.After(newest) {
			newest = c.At
		}
	}
	return newest
}

// Release applies a release.
func (u *Use) Release(r TokenRelease) {
	u.claims = slices.DeleteFunc(u.claims, func(c TokenClaim) bool { return r.All || c.Attempt == r.Attempt })
	if !u.Held() {
		u.State, u.ReleasedAt, u.ReleasedBy, u.Why = UseReleased, r.At, r.By, r.Why
	}
}

// A holder includes the identity: otherwise one key could enroll any number of names with one use.
type holder struct {
	key      string
	identity wire.Identity
}

// A UseCount counts one token's uses up to a revision of its log. It is not safe for concurrent use.
//
// A holder holds a use while a claim of any of its attempts is not released. Held never exceeds the token's uses, since
// an entry is appended only while the log is at the counted revision.
//
// At most that many holders get a certificate: an attempt writes its record after its claim, and a claim is released
// only if the record will never be written. A holder without a certificate retries for free.
type UseCount struct {
	Token *TokenInfo // nil if the log is empty
	At    Revision
	Uses  []*Use // in the order of their first claims
	Held  int    // uses that are held

	byHolder map[holder]*Use
}

// ReadUseCount reads the log of a token.
func ReadUseCount(ctx context.Context, log ClaimLog, tid jwt.TokenID) (*UseCount, error) {
	b := &UseCount{}
	return b, b.update(ctx, log, tid)
}

func (b *UseCount) update(ctx context.Context, log ClaimLog, tid jwt.TokenID) error {
	err := log.Claims(ctx, tid, b.At, func(e *ClaimEntry, at Revision) error {
		b.Apply(e, at)
		return nil
	})
	if err != nil {
		*b = UseCount{} // entries may be missing: read all again
	}
	return err
}

// Apply applies an entry. Repeating it is harmless.
func (b *UseCount) Apply(e *ClaimEntry, at Revision) {
	if at <= b.At {
		return
	}
	b.At = at
	b.Token = cmp.Or(b.Token, e.Token)
	for _, r := range e.Releases {
		u := b.byHolder[holder{r.Key, r.Identity}]
		if u == nil || !u.Held() {
			continue
		}
		if u.Release(r); !u.Held() {
			b.Held--
		}
	}
	for _, c := range e.Claims {
		u := b.use(c)
		if !u.Held() {
			b.Held++
		}
		u.State, u.ReleasedAt, u.ReleasedBy, u.Why = UseClaimed, time.Time{}, "", ""
		u.claims = append(u.claims, TokenClaim{Attempt: c.Attempt, At: c.At})
	}
}

func (b *UseCount) use(c TokenClaim) *Use {
	h := holder{c.Key, c.Identity}
	u := b.byHolder[h]
	if u == nil {
		u = &Use{TokenUse: TokenUse{
			Key:      c.Key,
			Identity: c.Identity,
			At:       c.At,
			Source:   c.Source,
		}}
		if b.byHolder == nil {
			b.byHolder = make(map[holder]*Use)
		}
		b.byHolder[h] = u
		b.Uses = append(b.Uses, u)
	}
	return u
}

func (b *UseCount) holds(h holder) bool { return b.byHolder[h] != nil && b.byHolder[h].Held() }

func (b *UseCount) has(h holder, attempt string) bool {
	return b.holds(h) &&
		slices.ContainsFunc(b.byHolder[h].claims, func(c TokenClaim) bool { return c.Attempt == attempt })
}
