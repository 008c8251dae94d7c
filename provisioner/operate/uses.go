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

// ErrUnknownToken means that no node has used the token. It may not exist.
var ErrUnknownToken = errors.New("no token with this id has been used")

// A TokenSummary is a token with its use count.
type TokenSummary struct {
	trust.TokenInfo
	Used int `json:"used"` // held by enrolled nodes and claims; limited tokens only

	// Left counts the free uses; nil: unlimited.
	Left *int `json:"left,omitempty"`

	// Frozen: a recovery may have lost uses, and no operator has counted them since.
	Frozen bool `json:"frozen"`

	Revoked *trust.Revocation `json:"revoked,omitempty"`
}

// Remaining is Left, 0 if unlimited.
func (t TokenSummary) Remaining() int {
	if t.Left == nil {
		return 0
	}
	return *t.Left
}

// UsedUp reports whether a limited token has no use left.
func (t TokenSummary) UsedUp() bool { return t.Uses > 0 && t.Remaining() == 0 }

// A TokenReport is a token with its uses.
type TokenReport struct {
	TokenSummary
	UsedBy []trust.TokenUse `json:"used_by"` // by first claim
	More   bool             `json:"more"`    // UsedBy was cut at the requested number
}

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

func (t *Tokens) fillStanding(s *TokenSummary) {
	s.Revoked = t.provisioner.Revocations().Token(s.ID)
	if s.Uses == 0 {
		return
	}
	s.Frozen = t.logs.FrozenBy(s.ID, s.IssuedAt) != nil
	left := max(t.logs.UsesOf(s.ID, s.Uses)-s.Used, 0)
	s.Left = &left
}

// List returns the tokens that were used, claimed or revoked, by the time first seen.
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

// Get returns one token with up to most uses. The error wraps [trust.ErrTokenID] or [ErrUnknownToken].
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

var errEnough = errors.New("enough")

// eachUse calls each for every use of a token until that fails, and returns its error with the summary. A limited token
// costs one read a use; an unlimited token costs reading every record, a million in three seconds.
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

func (t *Tokens) eachHolder(ctx context.Context, tid jwt.TokenID,
	each func(trust.TokenUse) error) (*TokenSummary, error) {
	info, err := t.store.NotedToken(ctx, tid)
	if err != nil {
		return nil, fmt.Errorf("token %s: %w", tid, err)
	}
	if info == nil {
		if r := t.provisioner.Revocations().Token(tid); r != nil { // revoked before any use
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
