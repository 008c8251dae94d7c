package trust

import (
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
	UseEnrolled UseState = "enrolled" // the key is or was on the identity's record
	UseClaimed  UseState = "claimed"  // spent without a certificate on record; an operator may release it
	UseReleased UseState = "released" // given back
)

// A TokenUse is one key's use of a token for one identity. Of an unlimited token it is an identity whose newest record
// names the token.
type TokenUse struct {
	Key        string        `json:"key"` // [ca.KeyHash]
	Identity   wire.Identity `json:"identity"`
	State      UseState      `json:"state"`
	At         time.Time     `json:"at"`               // of the first claim; of an unlimited token, of the record's last change
	Source     string        `json:"source,omitempty"` // address of the connection
	ReleasedAt time.Time     `json:"released_at,omitzero"`
	ReleasedBy string        `json:"released_by,omitempty"` // operator; empty if the refused attempt gave it back
	Why        string        `json:"why,omitempty"`
}

// A Use is a [TokenUse] with its claims.
type Use struct {
	TokenUse

	claims []TokenClaim // not released; without key and identity
}

// Held reports whether a claim of the use is not released.
func (u *Use) Held() bool { return len(u.claims) > 0 }

// Claimed returns when the newest claim that is not released was made, zero if none is held.
func (u *Use) Claimed() (newest time.Time) {
	for _, c := range u.claims {
		if c.At.After(newest) {
			newest = c.At
		}
	}
	return newest
}

// Give applies a release.
func (u *Use) Give(r TokenRelease) {
	u.claims = slices.DeleteFunc(u.claims, func(c TokenClaim) bool { return r.All || c.Attempt == r.Attempt })
	if !u.Held() {
		u.State, u.ReleasedAt, u.ReleasedBy, u.Why = UseReleased, r.At, r.By, r.Why
	}
}

// A holder is the owner of a use: a key with one identity. Counting keys alone would let one key collect any number of
// names for one use.
type holder struct {
	key      string
	identity wire.Identity
}

// A UseCount counts one token's uses up to a revision of its log. The zero value is that of an empty log. It is not
// safe for concurrent use.
//
// A holder holds a use while any claim of its attempts is not released. After every entry, held <= uses: each entry is
// appended under the revision that it was counted on. Every attempt writes its own claim, also for a holder that holds
// a use already, since a release takes back the claim of one attempt only.
//
// At most that many keys get a certificate: an attempt writes its record after its claim, and the claim is released
// only when the record is certain never to be written. That many do get one: a holder without a certificate retries for
// free, gives its use back, or is dead and an operator releases it.
type UseCount struct {
	Token *TokenInfo // nil if the log is empty
	At    Revision
	Uses  []*Use // in the order of their first claims
	Held  int    // number of held uses

	byHolder map[holder]*Use
}

// ReadUseCount reads the whole log of a token.
func ReadUseCount(ctx context.Context, log ClaimLog, tid jwt.TokenID) (*UseCount, error) {
	b := &UseCount{}
	return b, b.update(ctx, log, tid)
}

func (b *UseCount) update(ctx context.Context, log ClaimLog, tid jwt.TokenID) error {
	return log.Claims(ctx, tid, b.At, func(e *ClaimEntry, at Revision) error {
		b.Apply(e, at)
		return nil
	})
}

// Apply applies the entry at a revision. Repeating it is harmless, as is a release of a use that is not held.
func (b *UseCount) Apply(e *ClaimEntry, at Revision) {
	if at <= b.At {
		return
	}
	b.At = at
	if b.Token == nil {
		b.Token = e.Token
	}
	for _, r := range e.Releases {
		u := b.byHolder[holder{r.Key, r.Identity}]
		if u == nil || !u.Held() {
			continue
		}
		if u.Give(r); !u.Held() {
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
		u = &Use{TokenUse: TokenUse{Key: c.Key, Identity: c.Identity, At: c.At, Source: c.Source}}
		if b.byHolder == nil {
			b.byHolder = make(map[holder]*Use)
		}
		b.byHolder[h] = u
		b.Uses = append(b.Uses, u)
	}
	return u
}

func (b *UseCount) holds(h holder) bool { return b.byHolder[h] != nil && b.byHolder[h].Held() }

// has reports whether the attempt's claim is not released.
func (b *UseCount) has(h holder, attempt string) bool {
	return b.holds(h) && slices.ContainsFunc(b.byHolder[h].claims, func(c TokenClaim) bool { return c.Attempt == attempt })
}
