package console

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"slices"
	"time"

	"muster/jwt"
	"muster/provisioner"
)

// maxUses is how many uses of a token are on its page; `muster token show` has
// the others. Chosen.
const maxUses = 500

// A tokenRow is a token with what has become of it.
type tokenRow struct {
	provisioner.TokenSummary
	Revoked *provisioner.Revocation
	Ended   bool
}

// tokensPage is the list of tokens.
type tokensPage struct {
	Tokens []tokenRow // the newest first
	Frozen bool       // a recovery has frozen limited ones
	Now    time.Time
}

// tokens lists the tokens that have been used here or were issued, and those that
// were revoked before. It reads all claims: the page does not fetch itself again.
func (c tokenPages) tokens(v *visit) error {
	p := c.cfg.Provisioner
	used, err := p.Tokens(v.r.Context())
	if err != nil {
		return err
	}
	page := &tokensPage{Frozen: p.Frozen(), Now: c.cfg.Now()}
	listed := make(map[jwt.TokenID]bool, len(used))
	for _, t := range used {
		page.Tokens = append(page.Tokens, c.tokenRow(t))
		listed[t.ID] = true
	}
	for _, r := range p.Revocations().Tokens() {
		if !listed[r.Token] {
			page.Tokens = append(page.Tokens, c.tokenRow(provisioner.TokenSummary{TokenInfo: provisioner.TokenInfo{ID: r.Token, FirstSeen: r.At}}))
		}
	}
	slices.SortStableFunc(page.Tokens, func(a, b tokenRow) int { return b.FirstSeen.Compare(a.FirstSeen) })
	return c.page(v, "tokens", "Tokens", page)
}

func (c tokenPages) tokenRow(t provisioner.TokenSummary) tokenRow {
	return tokenRow{TokenSummary: t, Revoked: c.cfg.Provisioner.Revocations().Token(t.ID), Ended: !t.ExpiresAt.IsZero() && !c.cfg.Now().Before(t.ExpiresAt)}
}

// tokenPage is one token with who used it.
type tokenPage struct {
	tokenRow
	Unused  bool // nothing is known of it but its id
	UsedBy  []provisioner.TokenUse
	More    bool // have used it
	Actions []*action
	Done    string
}

var tokenActions = []*action{
	{
		Name:  "revoke",
		Label: "Revoke token",
		Grave: true,
		Touches: []string{
			"No machine can enroll with this token any more, on any provisioner, within a second.",
			"Machines that have enrolled with it stay in the fleet: look at who used it.",
		},
		Done: "The token is revoked. Look at who has used it.",
	},
	{
		Name:  "release",
		Label: "Give the use back",
		Touches: []string{
			"The machine has taken a use of the token, and never got a certificate.",
			"The use is free for another machine; the same one may come again, too.",
		},
		Done: "The use is given back: another machine may take it.",
	},
}

// token shows one token.
func (c tokenPages) token(v *visit) error {
	p, tid := c.cfg.Provisioner, jwt.TokenID(v.r.PathValue("tid"))
	page := &tokenPage{}
	enough := errors.New("enough")
	summary, err := p.EachUse(v.r.Context(), tid, func(u provisioner.TokenUse) error {
		if len(page.UsedBy) == maxUses {
			page.More = true
			return enough
		}
		page.UsedBy = append(page.UsedBy, u)
		return nil
	})
	revoked := p.Revocations().Token(tid)
	switch {
	case err == nil || errors.Is(err, enough):
		page.tokenRow = c.tokenRow(*summary)
	case errors.Is(err, provisioner.ErrUnknownToken): // who waits, or was refused, may have shown it
		page.Unused = true
		page.tokenRow = c.tokenRow(provisioner.TokenSummary{TokenInfo: provisioner.TokenInfo{ID: tid}})
	default:
		return err
	}
	for _, a := range tokenActions {
		if v.login.Role.Covers(cmp.Or(a.role, provisioner.RoleOperator)) && a.Name == "revoke" && revoked == nil {
			page.Actions = append(page.Actions, a)
		}
	}
	page.Done = done(v, tokenActions)
	return c.page(v, "token", "Token "+short(tid), page)
}

// order reads an order about a token, or about one use of it, which the field who names by the hash of its key.
func (c tokenPages) order(v *visit) (*order, error) {
	tid := jwt.TokenID(v.r.PathValue("tid"))
	if err := provisioner.CheckTokenID(tid); err != nil {
		return nil, err
	}
	a := named(tokenActions, v.r.PathValue("action"))
	if a == nil {
		return nil, errNoPage
	}
	o := &order{action: a, Back: "/tokens/" + string(tid), On: []string{"token " + string(tid)}}
	o.do = func(ctx context.Context, cause provisioner.Cause) (err error) {
		p := c.cfg.Provisioner
		switch a.Name {
		case "revoke":
			err = p.RevokeToken(ctx, tid, cause)
		default:
			_, err = p.ReleaseClaim(ctx, tid, o.Fields.Get("who"), cause)
		}
		return err
	}
	if a.Name == "release" {
		who := v.r.FormValue("who")
		o.On, o.Fields = []string{"the use of token " + string(tid) + " by key " + who}, url.Values{"who": {who}}
	}
	return o, nil
}
