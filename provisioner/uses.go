package provisioner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/trust"
)

// ErrUnknownToken means that no node has enrolled with the token yet: either
// there is no such token, or nobody has used it.
var ErrUnknownToken = errors.New("no token with this id has been used")

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

// A TokenSummary is a token with its count.
type TokenSummary struct {
	TokenInfo
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
	UsedBy []TokenUse `json:"used_by"` // in the order of their first claims
	More   bool       `json:"more"`    // there are more than [MaxTokenUses]
}

// MaxTokenUses bounds a [TokenReport]: chosen so that it stays below 4 MB.
const MaxTokenUses = 10_000

// use is a [TokenUse] with its attempts.
type use struct {
	TokenUse
	attempts []string // not released
	claims   []claimed
}

// claimed is one of the claims of a use, released or not.
type claimed struct {
	attempt string
	at      time.Time
}

func (u *use) held() bool { return len(u.attempts) > 0 }

// give takes a release into account.
func (u *use) give(r TokenRelease) {
	u.attempts = slices.DeleteFunc(u.attempts, func(a string) bool { return r.All || a == r.Attempt })
	if !u.held() {
		u.State, u.ReleasedAt, u.ReleasedBy, u.Why = UseReleased, r.At, r.By, r.Why
	}
}

// A useLog is a token's log as operators read it.
type useLog struct {
	token *TokenInfo // nil if the log is empty
	at    trust.Revision
	uses  []*use // in the order of their first claims
	by    map[holder]*use
}

// apply takes an entry into account, as [book.apply] does.
func (l *useLog) apply(e *ClaimEntry, at trust.Revision) {
	l.at = at
	if l.token == nil {
		l.token = e.Token
	}
	for _, r := range e.Releases {
		if u := l.by[holder{r.Key, r.Identity}]; u != nil && u.held() {
			u.give(r)
		}
	}
	for _, c := range e.Claims {
		h := holder{c.Key, c.Identity}
		u := l.by[h]
		if u == nil {
			u = &use{TokenUse: TokenUse{Key: c.Key, Identity: c.Identity, At: c.At, Source: c.Source}}
			l.by[h] = u
			l.uses = append(l.uses, u)
		}
		u.State, u.ReleasedAt, u.ReleasedBy, u.Why = UseClaimed, time.Time{}, "", ""
		u.attempts = append(u.attempts, c.Attempt)
		u.claims = append(u.claims, claimed{c.Attempt, c.At})
	}
}

// summarize counts. The info is nil if the log does not begin with one.
func summarize(tid jwt.TokenID, info *TokenInfo, held int) TokenSummary {
	s := TokenSummary{TokenInfo: TokenInfo{ID: tid}, Used: held}
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
func (p *Provisioner) fillStanding(s *TokenSummary) {
	s.Revoked = p.Revocations().Token(s.ID)
	if s.Uses == 0 {
		return
	}
	s.Frozen = p.frozen(s.ID, s.IssuedAt) != nil
	left := max(p.usesOf(s.ID, s.Uses)-s.Used, 0)
	s.Left = &left
}

// readUses reads the whole log of a token.
func readUses(ctx context.Context, log ClaimLog, tid jwt.TokenID) (*useLog, error) {
	l := &useLog{by: make(map[holder]*use)}
	err := log.Claims(ctx, tid, 0, func(e *ClaimEntry, at trust.Revision) error {
		l.apply(e, at)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return l, nil
}

// Tokens returns every token with which a node has enrolled or claimed a use, and
// those that were revoked before, in the order in which they were first seen.
func (p *Provisioner) Tokens(ctx context.Context) ([]TokenSummary, error) {
	type counted struct {
		token *TokenInfo
		book  book
	}
	logs := make(map[jwt.TokenID]*counted)
	err := p.cfg.Store.AllClaims(ctx, 0, func(tid jwt.TokenID, e *ClaimEntry, at trust.Revision) error {
		l := logs[tid]
		if l == nil {
			l = &counted{token: e.Token}
			logs[tid] = l
		}
		l.book.apply(e, at)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list tokens: %w", err)
	}
	var tokens []TokenSummary
	for tid, l := range logs {
		tokens = append(tokens, summarize(tid, l.token, len(l.book.held)))
	}
	err = p.cfg.Store.NotedTokens(ctx, func(t *TokenInfo) error {
		if logs[t.ID] == nil && (t.Uses == 0 || p.now().Before(t.ExpiresAt)) { // issued, and over before anybody used it
			tokens = append(tokens, summarize(t.ID, t, 0))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list tokens: %w", err)
	}
	listed := make(map[jwt.TokenID]bool, len(tokens))
	for i := range tokens {
		p.fillStanding(&tokens[i])
		listed[tokens[i].ID] = true
	}
	for _, r := range p.Revocations().Tokens() {
		if !listed[r.Token] {
			tokens = append(tokens, TokenSummary{TokenInfo: TokenInfo{ID: r.Token}, Revoked: r})
		}
	}
	slices.SortFunc(tokens, func(a, b TokenSummary) int {
		return cmp.Or(a.FirstSeen.Compare(b.FirstSeen), cmp.Compare(a.ID, b.ID))
	})
	return tokens, nil
}

// Token returns one token with at most [MaxTokenUses] of its uses. The error
// wraps [trust.ErrTokenID] or [ErrUnknownToken], or says what of the store cannot be
// read.
func (p *Provisioner) Token(ctx context.Context, tid jwt.TokenID) (*TokenReport, error) {
	report := &TokenReport{UsedBy: []TokenUse{}}
	summary, err := p.EachUse(ctx, tid, func(u TokenUse) error {
		if len(report.UsedBy) == MaxTokenUses {
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

// EachUse calls each for every use of a token and stops at its first error,
// which it returns with the summary. Of a limited token that is one read a use;
// of an unlimited one it reads every record of the fleet, a million in about
// three seconds, so each is also the place to show progress or to stop.
func (p *Provisioner) EachUse(ctx context.Context, tid jwt.TokenID, each func(TokenUse) error) (*TokenSummary, error) {
	if err := trust.CheckTokenID(tid); err != nil {
		return nil, err
	}
	l, err := readUses(ctx, p.cfg.Store, tid)
	if err != nil {
		return nil, fmt.Errorf("token %s: %w", tid, err)
	}
	if l.at == 0 {
		return p.eachHolder(ctx, tid, each)
	}
	held := 0
	for _, u := range l.uses {
		if u.held() {
			held++
		}
	}
	summary := summarize(tid, l.token, held)
	p.fillStanding(&summary)
	for _, u := range l.uses {
		if u.held() {
			enrolled, err := p.onRecord(ctx, u.Identity, u.Key)
			if err != nil {
				return &summary, fmt.Errorf("token %s: %w", tid, err)
			}
			if enrolled {
				u.State = UseEnrolled
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
func (p *Provisioner) eachHolder(ctx context.Context, tid jwt.TokenID, each func(TokenUse) error) (*TokenSummary, error) {
	info, err := p.cfg.Store.NotedToken(ctx, tid)
	if err != nil {
		return nil, fmt.Errorf("token %s: %w", tid, err)
	}
	if info == nil {
		if r := p.Revocations().Token(tid); r != nil { // never used, and never will be
			return &TokenSummary{TokenInfo: TokenInfo{ID: tid}, Revoked: r}, nil
		}
		return nil, fmt.Errorf("token %s: %w", tid, ErrUnknownToken)
	}
	summary := summarize(tid, info, 0)
	p.fillStanding(&summary)
	return &summary, p.cfg.Store.Records(ctx, func(r *Record, _ trust.Revision) error {
		if r.Token != tid {
			return nil
		}
		u := TokenUse{Identity: r.Identity, State: UseEnrolled, At: r.UpdatedAt, Source: r.Source}
		for _, i := range []*Issued{r.Current, r.Next} {
			if i != nil {
				u.Key = i.KeyHash
			}
		}
		return each(u)
	})
}
