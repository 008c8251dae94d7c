package operate

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/events"
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

func (t *Tokens) summary(tid jwt.TokenID, info *trust.TokenInfo, held int) TokenSummary {
	s := TokenSummary{
		TokenInfo: trust.TokenInfo{ID: tid},
		Used:      held,
		Revoked:   t.provisioner.Revocations().Token(tid),
	}
	if info != nil {
		s.TokenInfo = *info
	}
	if s.Uses > 0 {
		s.Frozen = t.logs.FrozenBy(tid, s.IssuedAt) != nil
		left := max(t.logs.UsesOf(tid, s.Uses)-held, 0)
		s.Left = &left
	}
	return s
}

// List returns the tokens that were used, claimed or revoked, by the time first seen.
func (t *Tokens) List(ctx context.Context) (_ []TokenSummary, err error) {
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
	tokens := make(map[jwt.TokenID]TokenSummary)
	for _, r := range t.provisioner.Revocations().Tokens() {
		tokens[r.Token] = t.summary(r.Token, nil, 0)
	}
	err = t.store.NotedTokens(ctx, func(i *trust.TokenInfo) error {
		tokens[i.ID] = t.summary(i.ID, i, 0)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for tid, b := range books {
		tokens[tid] = t.summary(tid, b.Token, b.Held)
	}
	return slices.SortedFunc(maps.Values(tokens), func(a, b TokenSummary) int {
		return cmp.Or(a.FirstSeen.Compare(b.FirstSeen), cmp.Compare(a.ID, b.ID))
	}), nil
}

// Get returns one token with up to most uses. A limited token costs one read a use; an unlimited token costs reading
// every record, a million in three seconds. The error wraps [trust.ErrTokenID] or [ErrUnknownToken].
func (t *Tokens) Get(ctx context.Context, tid jwt.TokenID, most int) (_ *TokenReport, err error) {
	if err := trust.CheckTokenID(tid); err != nil {
		return nil, err
	}
	defer about(&err, "token %s", tid)
	l, err := trust.ReadUseCount(ctx, t.store, tid)
	if err != nil {
		return nil, err
	}
	report := &TokenReport{TokenSummary: t.summary(tid, l.Token, l.Held), UsedBy: []trust.TokenUse{}}
	add := func(u trust.TokenUse) error {
		if len(report.UsedBy) == most {
			report.More = true
			return errEnough
		}
		report.UsedBy = append(report.UsedBy, u)
		return nil
	}
	if l.At == 0 {
		err = t.addHolders(ctx, report, add)
	} else {
		err = t.addUses(ctx, l.Uses, add)
	}
	if err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	return report, nil
}

var errEnough = errors.New("enough")

func (t *Tokens) addUses(ctx context.Context, uses []*trust.Use, add func(trust.TokenUse) error) error {
	for _, u := range uses {
		if u.Held() {
			enrolled, err := t.onRecord(ctx, u.Identity, u.Key)
			if err != nil {
				return err
			}
			if enrolled {
				u.State = trust.UseEnrolled
			}
		}
		if err := add(u.TokenUse); err != nil {
			return err
		}
	}
	return nil
}

func (t *Tokens) addHolders(ctx context.Context, to *TokenReport, add func(trust.TokenUse) error) error {
	info, err := t.store.NotedToken(ctx, to.ID)
	switch {
	case err != nil:
		return err
	case info == nil && to.Revoked != nil: // before any use
		return nil
	case info == nil:
		return ErrUnknownToken
	}
	to.TokenSummary = t.summary(to.ID, info, 0)
	return t.store.Records(ctx, func(r *provisioner.Record, _ trust.Revision) error {
		if r.Token != to.ID {
			return nil
		}
		u := trust.TokenUse{Identity: r.Identity, State: trust.UseEnrolled, At: r.UpdatedAt, Source: r.Source}
		if i := cmp.Or(r.Next, r.Current); i != nil {
			u.Key = i.KeyHash
		}
		return add(u)
	})
}

// Tokens are the tokens that nodes enroll with.
type Tokens struct{ *base }

// Identify returns the id of a token by its text. The error is that of [jwt.Verifier.Verify]: a token that is not valid
// needs no revocation.
func (t *Tokens) Identify(text string) (jwt.TokenID, error) {
	token, err := t.cfg.Signers.VerifyFrom(text, nil)
	if err != nil {
		return "", err
	}
	return token.ID, nil
}

// Revoke makes a token invalid, even if the store does not know it. Nodes that enrolled with it stay. The error is
// [trust.ErrUnacknowledged] if the store did not answer.
func (t *Tokens) Revoke(ctx context.Context, id jwt.TokenID, c trust.Cause) (err error) {
	defer about(&err, "revoke token %.80q", string(id))
	if err := wrong(c.Check(), trust.CheckTokenID(id)); err != nil {
		return err
	}
	if t.provisioner.Revocations().Token(id) != nil {
		return nil
	}
	entry := trust.NewRevocation(trust.RevokedToken, t.now(), c)
	entry.Token = id
	e := t.event(events.TokenRevoked, c)
	e.Token = id
	err = t.provisioner.Revocations().Put(ctx, entry, 0)
	if errors.Is(err, trust.ErrConflict) { // another provisioner was first
		return nil
	}
	if err == nil {
		t.report(ctx, "token revoked", e, "token_id", id)
	}
	return err
}
