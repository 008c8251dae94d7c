package console

import (
	"context"
	"errors"
	"net/http"
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
	Frozen bool       // a restore has frozen limited ones
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
	Actions []*tokenAction
	Done    string
}

// A tokenAction is something that an operator can have done with a token.
type tokenAction struct {
	Name, Label string
	Grave       bool
	Role        string // that it needs
	Touches     []string
	Done        string
	do          func(*provisioner.Provisioner, context.Context, jwt.TokenID, provisioner.Cause) error

	// OfUse: it is about one use, which the field who names by the hash of its key.
	OfUse bool
}

var tokenActions = []*tokenAction{
	{
		Name: "revoke", Label: "Revoke token", Grave: true, Role: "operator", do: (*provisioner.Provisioner).RevokeToken,
		Touches: []string{"No machine can enroll with this token any more, on any provisioner, within a second.", "Machines that have enrolled with it stay in the fleet: look at who used it."},
		Done:    "The token is revoked. Look at who has used it.",
	},
	{
		Name: "thaw", Label: "Make it good again", Role: "admin", do: (*provisioner.Provisioner).ThawToken,
		Touches: []string{"A restore has frozen this token, since uses of it may be missing from the backup.", "It is good again, and may be used more often than it says by as many uses as are missing."},
		Done:    "The token is good again.",
	},
	{
		Name: "release", Label: "Give the use back", Role: "operator", OfUse: true,
		Touches: []string{"The machine has taken a use of the token, and never got a certificate.", "The use is free for another machine; the same one may come again, too."},
		Done:    "The use is given back: another machine may take it.",
	},
}

func tokenActionNamed(name string) *tokenAction {
	i := slices.IndexFunc(tokenActions, func(a *tokenAction) bool { return a.Name == name })
	if i < 0 {
		return nil
	}
	return tokenActions[i]
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
		if v.login.Role.Covers(provisioner.OperatorRole(a.Role)) && (a.Name == "revoke" && revoked == nil || a.Name == "thaw" && page.Frozen) {
			page.Actions = append(page.Actions, a)
		}
	}
	if a := tokenActionNamed(v.r.URL.Query().Get("done")); a != nil {
		page.Done = a.Done
	}
	return c.page(v, "token", "Token "+short(tid), page)
}

// tokenAndAction reads them from the address, and checks the role again: some
// actions need more than the page.
func tokenAndAction(v *visit) (jwt.TokenID, *tokenAction, error) {
	tid := jwt.TokenID(v.r.PathValue("tid"))
	if err := provisioner.CheckTokenID(tid); err != nil {
		return "", nil, err
	}
	a := tokenActionNamed(v.r.PathValue("action"))
	if a == nil {
		return "", nil, errNoPage
	}
	if need := provisioner.OperatorRole(a.Role); !v.login.Role.Covers(need) {
		return "", nil, &roleError{v.login, need}
	}
	return tid, a, nil
}

// tokenConfirmation says what an action will touch. who is of an action about one
// use.
func tokenConfirmation(tid jwt.TokenID, a *tokenAction, who string) *confirmation {
	p := &confirmation{
		Title: a.Label, To: "/tokens/" + string(tid) + "/do/" + a.Name, Back: "/tokens/" + string(tid), Button: a.Label, Grave: a.Grave, Touches: a.Touches,
		On: []string{"token " + string(tid)},
	}
	if a.OfUse {
		p.On, p.Fields = []string{"the use of token " + string(tid) + " by key " + who}, map[string]string{"who": who}
	}
	return p
}

// carryOut does what an action says.
func (c tokenPages) carryOut(v *visit, tid jwt.TokenID, a *tokenAction) error {
	if !a.OfUse {
		return a.do(c.cfg.Provisioner, v.r.Context(), tid, v.cause())
	}
	_, err := c.cfg.Provisioner.ReleaseClaim(v.r.Context(), tid, v.r.PostForm.Get("who"), v.cause())
	return err
}

func (c tokenPages) confirmToken(v *visit) error {
	tid, a, err := tokenAndAction(v)
	if err != nil {
		return err
	}
	return c.page(v, "confirm", a.Label, tokenConfirmation(tid, a, v.r.URL.Query().Get("who")))
}

// actOnToken does what was confirmed.
func (c tokenPages) actOnToken(v *visit) error {
	tid, a, err := tokenAndAction(v)
	if err != nil {
		return err
	}
	if err := reason(v); err != nil {
		return c.askAgain(v, err, tokenConfirmation(tid, a, v.r.PostForm.Get("who")))
	}
	if err := c.carryOut(v, tid, a); err != nil {
		return err
	}
	http.Redirect(v.w, v.r, "/tokens/"+string(tid)+"?done="+a.Name, http.StatusSeeOther)
	return nil
}
