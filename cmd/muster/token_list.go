package main

import (
	"context"
	"net/http"
	"os"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
	"muster/provisioner/httpapi"
)

// tokenListVerb is "muster token list".
type tokenListVerb struct{ operator }

const aboutListing = `Lists every token with which a node has enrolled, whoever signed it and wherever,
the oldest first, and those that were revoked before anybody used them.

  muster token list
  muster token list --json`

func addTokenList(parent *kingpin.CmdClause, all verbs) {
	v := &tokenListVerb{}
	c := parent.Command("list", "List tokens that were used here, with the uses they have left.").HelpLong(aboutListing)
	v.add(c, all)
	all[c.FullCommand()] = v.run
}

func (v *tokenListVerb) run(ctx context.Context) error {
	var tokens []httpapi.Token
	if err := v.ask(ctx, http.MethodGet, "/v1/tokens", nil, &tokens); err != nil {
		return err
	}
	return v.print(tokens, func() error {
		if len(tokens) == 0 {
			v.say("no token has been used here yet")
			return nil
		}
		var t cli.Table
		t.Add("TOKEN ID", "STATE", "USES", "SIGNER", "FOR", "FIRST SEEN", "EXPIRES")
		for i := range tokens {
			k := &tokens[i]
			t.Add(string(k.ID), tokenState(k, time.Now()), usesText(k), k.SignerName, forText(k), instant(k.FirstSeen), instant(k.ExpiresAt))
		}
		_, err := t.WriteTo(os.Stdout)
		return err
	})
}
