package token

import (
	"context"
	"fmt"
	"time"

	"muster/provisioner/operate"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
)

const listHelp = `Lists every token with which a node has enrolled, the oldest first, and tokens that
were revoked before they were used.

  muster token list
  muster token list -o json`

func addList(parent *kingpin.CmdClause, all cli.Verbs) {
	c := parent.Command("list", "List used tokens with the uses that are left.").HelpLong(listHelp)
	verb.ListOf(c, all, "/v1/tokens", "no token has been used yet", columns)
}

var columns = []cli.Column[operate.TokenSummary]{
	{Title: "TOKEN ID", Value: func(t operate.TokenSummary) any { return t.ID }},
	{Title: "STATE", Value: func(t operate.TokenSummary) any { return stateOf(&t, time.Now()) }},
	{Title: "USES", Value: func(t operate.TokenSummary) any { return usesText(&t) }},
	{Title: "SIGNER", Value: func(t operate.TokenSummary) any { return t.SignerName }},
	{Title: "FOR", Value: func(t operate.TokenSummary) any { return forText(&t) }},
	{Title: "FIRST SEEN", Value: func(t operate.TokenSummary) any { return t.FirstSeen }},
	{Title: "ISSUED", Wide: true, Value: func(t operate.TokenSummary) any { return t.IssuedAt }},
	{Title: "EXPIRES", Value: func(t operate.TokenSummary) any { return t.ExpiresAt }},
	{Title: "SIGNER ID", Wide: true, Value: func(t operate.TokenSummary) any { return t.Signer }},
}

const showHelp = `Shows the limits of a token, the uses that are left, and the uses so far: node, key,
time and address. A use that is "claimed" has no certificate yet, because the node or
the provisioner died meanwhile: that node can still enroll without another use. If it
never comes back, 'muster token release' returns the use.

  muster token show provisioning.jwt
  muster token show 0f1e2d3c4b5a69780f1e2d3c4b5a6978 -o json`

func addShow(parent *kingpin.CmdClause, all cli.Verbs) {
	c := parent.Command("show", "Show a token and the nodes that used it.").HelpLong(showHelp)
	token := tokenArg(c)
	verb.Query(c, all, func(ctx context.Context, o *verb.Operator) (*operate.TokenReport, error) {
		path, _, err := token.path(ctx, o)
		if err != nil {
			return nil, err
		}
		return verb.Get[*operate.TokenReport](ctx, o, path)
	}, show)
}

func show(o *verb.Operator, r *operate.TokenReport) fmt.Stringer {
	token := &r.TokenSummary
	l := &cli.Labels{}
	l.Add("Token ID", string(r.ID))
	l.Add("State", stateOf(token, time.Now()))
	if x := r.Revoked; x != nil {
		l.Addf("Revoked", "%s by %s%s", verb.Instant(x.At), x.By, verb.Because(x.Why))
	}
	if r.SignerName != "" {
		l.Addf("Signed by", "%s, key SHA-256 %s", r.SignerName, verb.Short(string(r.Signer)))
		l.Add("Issued At", verb.Instant(r.IssuedAt))
		l.Add("Expires At", verb.Instant(r.ExpiresAt))
		l.Add("For", forText(token))
		l.Add("Uses", usesText(token))
		l.Add("First seen", verb.Instant(r.FirstSeen))
	}
	switch {
	case len(r.UsedBy) == 0:
		return cli.Parts{l, cli.Text("It was never used.\n")}
	case r.More:
		o.After("only the first %d uses are listed", len(r.UsedBy))
	}
	return cli.Parts{l, uses(r.UsedBy)}
}
