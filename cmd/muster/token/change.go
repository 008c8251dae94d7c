package token

import (
	"context"
	"io"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/provisioner"
	"muster/provisioner/httpapi"
)

const revokeHelp = `Makes a token worthless on every provisioner within a second, for good. Machines
that enrolled with it stay as they are, and are listed: those that should not
be there are for 'muster node revoke'. A token that nobody has used yet is named
by its file.

  muster token revoke provisioning.jwt --why 'it was in a public image'
  muster token revoke 0f1e2d3c4b5a69780f1e2d3c4b5a6978`

func addRevoke(parent *kingpin.CmdClause, all cli.Verbs) {
	c := parent.Command("revoke", "Make a token worthless, everywhere within a second.").HelpLong(revokeHelp)
	token := tokenArg(c)
	verb.Order(c, all, func(ctx context.Context, o *verb.Operator) (*httpapi.TokenReport, error) {
		path, _, err := token.path(ctx, o)
		if err != nil {
			return nil, err
		}
		return verb.Post[*httpapi.TokenReport](ctx, o, path+"/revoke", httpapi.Reason{Why: o.Why})
	}, func(o *verb.Operator, r *httpapi.TokenReport) io.WriterTo {
		enrolled := 0
		for _, u := range r.UsedBy {
			if u.State == provisioner.UseEnrolled {
				enrolled++
			}
		}
		o.Say("token %s is revoked; %s enrolled with it before", r.ID, verb.Counted(enrolled, "machine has", "machines have"))
		if len(r.UsedBy) == 0 {
			return nil
		}
		return uses(r.UsedBy)
	})
}

const releaseHelp = `Gives back a use that was claimed and never enrolled: 'muster token show' lists
those as "claimed". It must be ten minutes old, longer than any request lives, and
no certificate may ever have been issued for it. Should that machine come back
after all, it needs a use like any other.

  muster token release provisioning.jwt web1.example.net --why 'it burnt down'
  muster token release 0f1e2d3c4b5a69780f1e2d3c4b5a6978 web1.example.net`

func addRelease(parent *kingpin.CmdClause, all cli.Verbs) {
	c := parent.Command("release", "Give back a use that was claimed and never enrolled.").HelpLong(releaseHelp)
	token := tokenArg(c)
	var of, id string
	c.Arg("of", "The machine's name, or the hash of its key.").Required().StringVar(&of)
	verb.Order(c, all, func(ctx context.Context, o *verb.Operator) (released []provisioner.TokenUse, err error) {
		var path string
		if path, id, err = token.path(ctx, o); err != nil {
			return nil, err
		}
		return verb.Post[[]provisioner.TokenUse](ctx, o, path+"/release", httpapi.Release{Of: of, Why: o.Why})
	}, func(o *verb.Operator, released []provisioner.TokenUse) io.WriterTo {
		o.Say("%s of token %s given back", verb.Counted(len(released), "use", "uses"), id)
		return uses(released)
	})
}

const thawHelp = `'muster restore --accept-lost-since' freezes all limited tokens: nobody knows how
many uses were spent since the backup. This makes one good again, for the uses
that the restored store leaves it. A new token needs no thawing.

  muster token thaw 0f1e2d3c4b5a69780f1e2d3c4b5a6978 --why 'nobody used it that night'
  muster token thaw provisioning.jwt`

func addThaw(parent *kingpin.CmdClause, all cli.Verbs) {
	c := parent.Command("thaw", "Make a token good again that a restore has frozen.").HelpLong(thawHelp)
	token := tokenArg(c)
	verb.Order(c, all, func(ctx context.Context, o *verb.Operator) (map[string]string, error) {
		path, id, err := token.path(ctx, o)
		if err != nil {
			return nil, err
		}
		return map[string]string{"thawed": id}, verb.Send(ctx, o, path+"/thaw", httpapi.Reason{Why: o.Why})
	}, func(o *verb.Operator, answer map[string]string) io.WriterTo {
		o.Say("token %s is good again", answer["thawed"])
		return nil
	})
}
