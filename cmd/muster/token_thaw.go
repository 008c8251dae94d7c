package main

import (
	"context"
	"net/http"

	"github.com/alecthomas/kingpin/v2"

	"muster/provisioner/httpapi"
)

// tokenThawVerb is "muster token thaw".
type tokenThawVerb struct{ tokenVerb }

const tokenThawHelp = `'muster restore --accept-lost-since' freezes all limited tokens: nobody knows how
many uses were spent since the backup. This makes one good again, for the uses
that the restored store leaves it. A new token needs no thawing.

  muster token thaw 0f1e2d3c4b5a69780f1e2d3c4b5a6978 --why 'nobody used it that night'
  muster token thaw provisioning.jwt`

func addTokenThaw(parent *kingpin.CmdClause, all verbs) {
	v := &tokenThawVerb{}
	c := parent.Command("thaw", "Make a token good again that a restore has frozen.").HelpLong(tokenThawHelp)
	v.arg(c)
	v.addChange(c, all)
	all[c.FullCommand()] = v.run
}

func (v *tokenThawVerb) run(ctx context.Context) error {
	id, err := v.id(ctx)
	if err != nil {
		return err
	}
	if err := v.ask(ctx, http.MethodPost, "/v1/tokens/"+string(id)+"/thaw", httpapi.Reason{Why: v.why}, nil); err != nil {
		return err
	}
	return v.printDone(map[string]string{"thawed": string(id)}, func() error { v.say("token %s is good again", id); return nil })
}
