package main

import (
	"context"
	"net/http"

	"github.com/alecthomas/kingpin/v2"

	"muster/provisioner"
	"muster/provisioner/httpapi"
)

// tokenReleaseVerb is "muster token release".
type tokenReleaseVerb struct {
	tokenVerb
	of string
}

const tokenReleaseHelp = `Gives back a use that was claimed and never enrolled: 'muster token show' lists
those as "claimed". It must be ten minutes old, longer than any request lives, and
no certificate may ever have been issued for it. Should that machine come back
after all, it needs a use like any other.

  muster token release provisioning.jwt web1.example.net --why 'it burnt down'
  muster token release 0f1e2d3c4b5a69780f1e2d3c4b5a6978 web1.example.net`

func addTokenRelease(parent *kingpin.CmdClause, all verbs) {
	v := &tokenReleaseVerb{}
	c := parent.Command("release", "Give back a use that was claimed and never enrolled.").HelpLong(tokenReleaseHelp)
	v.arg(c)
	c.Arg("of", "The machine's name, or the hash of its key.").Required().StringVar(&v.of)
	v.addChange(c, all)
	all[c.FullCommand()] = v.run
}

func (v *tokenReleaseVerb) run(ctx context.Context) error {
	id, err := v.id(ctx)
	if err != nil {
		return err
	}
	var released []provisioner.TokenUse
	if err := v.ask(ctx, http.MethodPost, "/v1/tokens/"+string(id)+"/release", httpapi.Release{Of: v.of, Why: v.why}, &released); err != nil {
		return err
	}
	return v.printDone(released, func() error {
		v.say("%s of token %s given back", counted(len(released), "use", "uses"), id)
		return writeUses(released)
	})
}
