package console

import (
	"context"
	"errors"
	"net/url"
	"slices"

	"muster/provisioner/operate"

	"muster/jwt"
	"muster/provisioner/trust"
)

// maxUses is how many uses of a token are on its page; `muster token show` has
// the others. Chosen.
const maxUses = 500

// tokensPage is the list of tokens.
type tokensPage struct {
	Tokens []operate.TokenSummary // the newest first
	Frozen bool                   // a recovery has frozen limited ones
}

// tokens lists the tokens that have been used here or were issued, and those that
// were revoked before. It reads all claims: the page does not fetch itself again.
func (c tokenPages) tokens(v *visit) error {
	all, err := c.cfg.Orders.Tokens.List(v.r.Context())
	if err != nil {
		return err
	}
	slices.Reverse(all)
	return c.page(v, "tokens", "Tokens", &tokensPage{all, c.cfg.Orders.Recovery.Frozen()})
}

// tokenPage is one token with who used it.
type tokenPage struct {
	*operate.TokenReport
	Actions []*action
	Done    string
}

// Unused reports that nothing is known of the token but its id.
func (p *tokenPage) Unused() bool { return p.SignerName == "" }

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
	tid := jwt.TokenID(v.r.PathValue("tid"))
	page := &tokenPage{Done: done(v, tokenActions)}
	var err error
	page.TokenReport, err = c.cfg.Orders.Tokens.Get(v.r.Context(), tid, maxUses)
	if errors.Is(err, operate.ErrUnknownToken) { // a machine that waits, or was refused, may have shown it
		unknown := operate.TokenSummary{TokenInfo: trust.TokenInfo{ID: tid}}
		page.TokenReport, err = &operate.TokenReport{TokenSummary: unknown}, nil
	}
	if err != nil {
		return err
	}
	if v.login.Role.Covers(trust.RoleOperator) && page.Revoked == nil {
		page.Actions = []*action{named(tokenActions, "revoke")}
	}
	return c.page(v, "token", "Token "+short(tid), page)
}

// order reads an order about a token, or about one use of it, which the field who names by the hash of its key.
func (c tokenPages) order(v *visit) (*order, error) {
	tid := jwt.TokenID(v.r.PathValue("tid"))
	if err := trust.CheckTokenID(tid); err != nil {
		return nil, err
	}
	a := named(tokenActions, v.r.PathValue("action"))
	if a == nil {
		return nil, errNoPage
	}
	o := &order{action: a, Back: "/tokens/" + string(tid), On: []string{"token " + string(tid)}}
	o.do = func(ctx context.Context, cause trust.Cause) (err error) {
		switch a.Name {
		case "revoke":
			err = c.cfg.Orders.Tokens.Revoke(ctx, tid, cause)
		default:
			_, err = c.cfg.Orders.Tokens.Release(ctx, tid, o.Fields.Get("who"), cause)
		}
		return err
	}
	if a.Name == "release" {
		who := v.r.FormValue("who")
		o.On, o.Fields = []string{"the use of token " + string(tid) + " by key " + who}, url.Values{"who": {who}}
	}
	return o, nil
}
