package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"muster/provisioner"

	"muster/jwt"
	"muster/provisioner/trust"
)

// ErrUnknownToken means that no node has enrolled with the token yet: either
// there is no such token, or nobody has used it.
var ErrUnknownToken = errors.New("no token with this id has been used")

// A TokenSummary is a token with its count.
type TokenSummary struct {
	trust.TokenInfo
	Used int `json:"used"` // of a limited token: uses that are held, by enrolled nodes and claims

	// Left is how many uses are not taken, nil of an unlimited token.
	Left *int `json:"left,omitempty"`

	// Frozen: a recovery may have lost uses of it, and no operator has said since how many it has.
	Frozen bool `json:"frozen"`

	Revoked *trust.Revocation `json:"revoked,omitempty"`
}

// Remaining returns how many uses are left of a limited token, 0 of an unlimited one.
func (t TokenSummary) Remaining() int {
	if t.Left == nil {
		return 0
	}
	return *t.Left
}

// UsedUp reports whether no use is left of a limited token.
func (t TokenSummary) UsedUp() bool { return t.Uses > 0 && t.Remaining() == 0 }

// A TokenReport is a token with who used it.
type TokenReport struct {
	TokenSummary
	UsedBy []trust.TokenUse `json:"used_by"` // in the order of their first claims
	More   bool             `json:"more"`    // there are more than were asked for
}

// summarize counts. The info is nil if the log does not begin with one.
func summarize(tid jwt.TokenID, info *trust.TokenInfo, held int) TokenSummary {
	s := TokenSummary{TokenInfo: trust.TokenInfo{ID: tid}, Used: held}
	if info != nil {
		s.TokenInfo = *info
	}
	if s.Uses > 0 {
		left := max(s.Uses-held, 0)
		s.Left = &left
	}
	return s
}

// fillStanding says whether a token is revoked, and what a recovery has left of a limited one.
func (t *Tokens) fillStanding(s *TokenSummary) {
	s.Revoked = t.provisioner.Revocations().Token(s.ID)
	if s.Uses == 0 {
		return
	}
	s.Frozen = t.logs.FrozenBy(s.ID, s.IssuedAt) != nil
	left := max(t.logs.UsesOf(s.ID, s.Uses)-s.Used, 0)
	s.Left = &left
}

// List returns every token with which a node has enrolled or claimed a use, and
// those that were revoked before, in the order in which they were first seen.
func (t *Tokens) List(ctx context.Context) (tokens []TokenSummary, err error) {
	defer about(&err, "list tokens")
	books := make(map[jwt.TokenID]*trust.UseCount)
	err = t.store.AllClaims(ctx, func(tid jwt.TokenID, e *trust.ClaimEntry, at trust.Revision) error {
		if books[tid] == nil {
			books[tid] = &trust.UseCount{}
		}
		books[tid].Apply(e, at)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for tid, b := range books {
		tokens = append(tokens, summarize(tid, b.Token, b.Held))
	}
	err = t.store.NotedTokens(ctx, func(i *trust.TokenInfo) error {
		if books[i.ID] == nil {
			tokens = append(tokens, summarize(i.ID, i, 0))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	listed := make(map[jwt.TokenID]bool, len(tokens))
	for i := range tokens {
		t.fillStanding(&tokens[i])
		listed[tokens[i].ID] = true
	}
	for _, r := range t.provisioner.Revocations().Tokens() {
		if !listed[r.Token] {
			tokens = append(tokens, TokenSummary{TokenInfo: trust.TokenInfo{ID: r.Token}, Revoked: r})
		}
	}
	slices.SortFunc(tokens, func(a, b TokenSummary) int {
		return cmp.Or(a.FirstSeen.Compare(b.FirstSeen), cmp.Compare(a.ID, b.ID))
	})
	return tokens, nil
}

// Get returns one token with at most so many of its uses. The error
// wraps [trust.ErrTokenID] or [ErrUnknownToken], or says what of the store cannot be
// read.
func (t *Tokens) Get(ctx context.Context, tid jwt.TokenID, most int) (*TokenReport, error) {
	report := &TokenReport{UsedBy: []trust.TokenUse{}}
	summary, err := t.eachUse(ctx, tid, func(u trust.TokenUse) error {
		if len(report.UsedBy) == most {
			report.More = true
			return errEnough
		}
		report.UsedBy = append(report.UsedBy, u)
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	report.TokenSummary = *summary
	return report, nil
}

// errEnough ends an iteration.
var errEnough = errors.New("enough")

// eachUse calls each for every use of a token and stops at its first error,
// which it returns with the summary. Of a limited token that is one read a use;
// of an unlimited one it reads every record of the fleet, a million in about
// three seconds.
func (t *Tokens) eachUse(ctx context.Context, tid jwt.TokenID, each func(trust.TokenUse) error) (*TokenSummary, error) {
	if err := trust.CheckTokenID(tid); err != nil {
		return nil, err
	}
	l, err := trust.ReadUseCount(ctx, t.store, tid)
	if err != nil {
		return nil, fmt.Errorf("token %s: %w", tid, err)
	}
	if l.At == 0 {
		return t.eachHolder(ctx, tid, each)
	}
	summary := summarize(tid, l.Token, l.Held)
	t.fillStanding(&summary)
	for _, u := range l.Uses {
		if u.Held() {
			enrolled, err := t.onRecord(ctx, u.Identity, u.Key)
			if err != nil {
				return &summary, fmt.Errorf("token %s: %w", tid, err)
			}
			if enrolled {
				u.State = trust.UseEnrolled
			}
		}
		if err := each(u.TokenUse); err != nil {
			return &summary, err
		}
	}
	return &summary, nil
}

// eachHolder calls each for the identities whose newest record names the token,
// which is not a limited one.
func (t *Tokens) eachHolder(ctx context.Context, tid jwt.TokenID, each func(trust.TokenUse) error) (*TokenSummary, error) {
	info, err := t.store.NotedToken(ctx, tid)
	if err != nil {
		return nil, fmt.Errorf("token %s: %w", tid, err)
	}
	if info == nil {
		if r := t.provisioner.Revocations().Token(tid); r != nil { // never used, and never will be
			return &TokenSummary{TokenInfo: trust.TokenInfo{ID: tid}, Revoked: r}, nil
		}
		return nil, fmt.Errorf("token %s: %w", tid, ErrUnknownToken)
	}
	summary := summarize(tid, info, 0)
	t.fillStanding(&summary)
	return &summary, t.store.Records(ctx, func(r *provisioner.Record, _ trust.Revision) error {
		if r.Token != tid {
			return nil
		}
		u := trust.TokenUse{Identity: r.Identity, State: trust.UseEnrolled, At: r.UpdatedAt, Source: r.Source}
		for _, i := range []*provisioner.Issued{r.Current, r.Next} {
			if i != nil {
				u.Key = i.KeyHash
			}
		}
		return each(u)
	})
}
