package trust

import (
	"context"
	"slices"
	"time"

	"muster/internal/wire"
	"muster/jwt"
)

// A UseState says what has become of a token's use.
type UseState string

// The states of a use.
const (
	UseEnrolled UseState = "enrolled" // the key is on the identity's record, or has been
	UseClaimed  UseState = "claimed"  // spent, and no certificate on record: an operator may release it
	UseReleased UseState = "released" // given back
)

// A TokenUse is one key's use of a token for one identity. Of an unlimited token
// it is an identity whose newest record names the token.
type TokenUse struct {
	Key        string        `json:"key"` // [ca.KeyHash]
	Identity   wire.Identity `json:"identity"`
	State      UseState      `json:"state"`
	At         time.Time     `json:"at"`               // of the first claim; of an unlimited token, of the record's last change
	Source     string        `json:"source,omitempty"` // address that it came from
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

// Claimed is when the newest claim that is not released was made, zero if none is held.
func (u *Use) Claimed() (newest time.Time) {
	for _, c := range u.claims {
		if c.At.After(newest) {
			newest = c.At
		}
	}
	return newest
}

// Give takes a release into account.
func (u *Use) Give(r TokenRelease) {
	u.claims = slices.DeleteFunc(u.claims, func(c TokenClaim) bool { return r.All || c.Attempt == r.Attempt })
	if !u.Held() {
		u.State, u.ReleasedAt, u.ReleasedBy, u.Why = UseReleased, r.At, r.By, r.Why
	}
}

// A holder is what a use belongs to: a key for one identity. The promise counts
// keys; counting the identity as well is stricter, since one key could
// otherwise collect any number of names for a single use.
type holder struct {
	key      string
	identity wire.Identity
}

// A UseCount is the count of one token's uses up to a revision of its log. The zero value is that of an empty log. It is not
// safe for concurrent use.
//
// A holder holds a use while any claim of its attempts is not released. The
// rule that everything rests on: held <= uses after every entry. Each entry is
// appended under the revision that it was counted on, so no other entry comes
// between the counting and the writing.
//
// Every attempt writes a claim of its own, also for a holder that holds already
// and costs nothing, because a release takes back one attempt's claim: what
// another attempt of the same key relied on stays.
//
// Why at most so many get a certificate: an attempt writes its record only
// after its claim is in the log, and its claim is only released once it is
// certain that it wrote none, and never will. So each holder with a certificate
// has a claim that is never released, and is among those that are held at the
// end of the log.
//
// Why so many do: a holder that holds a use without a certificate is a node
// that retries, at no cost, or gives it back, or has died, and then an operator
// releases it.
type UseCount struct {
	Token *TokenInfo // nil if the log is empty
	At    Revision
	Uses  []*Use // in the order of their first claims
	Held  int    // how many of them are held

	byHolder map[holder]*Use
}

// ReadUseCount reads the whole log of a token.
func ReadUseCount(ctx context.Context, log ClaimLog, tid jwt.TokenID) (*UseCount, error) {
	b := &UseCount{}
	return b, b.update(ctx, log, tid)
}

// readOn brings the book up to date.
func (b *UseCount) update(ctx context.Context, log ClaimLog, tid jwt.TokenID) error {
	return log.Claims(ctx, tid, b.At, func(e *ClaimEntry, at Revision) error {
		b.Apply(e, at)
		return nil
	})
}

// Apply takes the entry at a revision into account. An entry that has been
// already changes nothing; neither does a release of what is not held.
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

// use returns the use that a claim is of.
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

// holds reports whether the holder has a use.
func (b *UseCount) holds(h holder) bool { return b.byHolder[h] != nil && b.byHolder[h].Held() }

// has reports whether the attempt's claim is in the log and not released.
func (b *UseCount) has(h holder, attempt string) bool {
	return b.holds(h) && slices.ContainsFunc(b.byHolder[h].claims, func(c TokenClaim) bool { return c.Attempt == attempt })
}
