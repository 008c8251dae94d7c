package console

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"

	"muster/internal/cli"
	"muster/provisioner/operate"

	"muster/jwt"
	"muster/provisioner/trust"
)

// maxUses bounds the uses on the page; `muster token show` lists all.
const maxUses = 500

type tokensPage struct {
	Tokens []operate.TokenSummary // newest first
	Frozen bool                   // a recovery has frozen limited ones
}

// tokens reads all claims, so the page does not refresh itself.
func (c tokenPages) tokens(v *visit) error {
	all, err := c.cfg.Orders.Tokens.List(v.r.Context())
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(t operate.TokenSummary) bool { return !v.login.Sites.Has(t.Site) })
	slices.Reverse(all)
	return c.page(v, "tokens", "Tokens", &tokensPage{all, c.cfg.Orders.Recovery.Frozen()})
}

type tokenPage struct {
	*operate.TokenReport
	Actions []*action
	Done    string
}

// Unused reports that only the id of the token is known.
func (p *tokenPage) Unused() bool { return p.SignerName == "" }

var tokenActions = []*action{
	{
		Name:  "revoke",
		Label: "Revoke token",
		Grave: true,
		Touches: []string{
			"No node can enroll with this token any more, on any provisioner, within a second.",
			"Nodes that enrolled with it stay in the fleet: look at its uses.",
		},
		Done: "The token is revoked. Look at the nodes that used it.",
	},
	{
		Name:  "release",
		Label: "Release use",
		Touches: []string{
			"The node claimed a use of the token, but never got a certificate.",
			"The use is free for another node, or for the same one.",
		},
		Done: "The use is released: another node can take it.",
	},
}

func (c tokenPages) token(v *visit) error {
	tid := jwt.TokenID(v.r.PathValue("tid"))
	page := &tokenPage{Done: done(v, tokenActions)}
	var err error
	page.TokenReport, err = c.cfg.Orders.Tokens.Get(v.r.Context(), tid, maxUses)
	if errors.Is(err, operate.ErrUnknownToken) { // a waiting or refused node may have shown it
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

// compose shows the command that signs a token as the form says. No signer's key is here.
func (c tokenPages) compose(v *visit) error {
	form := formOf(v)
	return c.page(v, "compose", "Sign a token", &form)
}

// shell quotes an argument for a shell.
func shell(text string) string {
	return "'" + strings.ReplaceAll(cli.Printable(text), "'", `'\''`) + "'"
}

// order reads an order about a token, or about the use of the key in the field key.
func (c tokenPages) order(v *visit, o *order) error {
	tid, key := jwt.TokenID(v.r.PathValue("tid")), v.r.FormValue("key")
	o.Back, o.On = "/tokens/"+string(tid), []string{"token " + string(tid)}
	if o.Name == "release" {
		o.On, o.Fields = []string{"the use of token " + string(tid) + " by key " + key}, url.Values{"key": {key}}
	}
	o.do = func(ctx context.Context, cause trust.Cause) (err error) {
		if o.Name == "revoke" {
			return c.cfg.Orders.Tokens.Revoke(ctx, tid, cause)
		}
		_, err = c.cfg.Orders.Tokens.Release(ctx, tid, key, cause)
		return err
	}
	return trust.CheckTokenID(tid)
}
