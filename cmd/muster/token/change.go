package token

import (
	"context"
	"fmt"
	"math"

	"muster/provisioner/operate"
	"muster/provisioner/trust"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/provisioner/httpapi"
)

const revokeHelp = `Makes a token invalid on every provisioner within a second, for good. Nodes that
enrolled with it stay in the fleet and are listed; 'muster node revoke' removes one.
A token that was never used is named by its file.

  muster token revoke provisioning.jwt --why 'it was in a public image'
  muster token revoke 0f1e2d3c4b5a69780f1e2d3c4b5a6978`

func addRevoke(parent *kingpin.CmdClause, all cli.Verbs) {
	c := parent.Command("revoke", "Make a token invalid, everywhere within a second.").HelpLong(revokeHelp)
	token := tokenArg(c)
	verb.Order(c, all, func(ctx context.Context, o *verb.Operator) (*operate.TokenReport, error) {
		path, _, err := token.path(ctx, o)
		if err != nil {
			return nil, err
		}
		return verb.Post[*operate.TokenReport](ctx, o, path+"/revoke", httpapi.Reason{Why: o.Why})
	}, func(o *verb.Operator, r *operate.TokenReport) fmt.Stringer {
		enrolled := 0
		for _, u := range r.UsedBy {
			if u.State == trust.UseEnrolled {
				enrolled++
			}
		}
		o.Say("token %s is revoked; %s enrolled with it and stay", r.ID,
			verb.Counted(enrolled, "node has", "nodes have"))
		if len(r.UsedBy) == 0 {
			return nil
		}
		return uses(r.UsedBy)
	})
}

const releaseHelp = `Returns a use that is "claimed" in 'muster token show'. It must be ten minutes old,
longer than any request lives, and no certificate may have been issued for it. If
the node comes back later, it needs another use.

  muster token release provisioning.jwt web1.example.net --why 'it burned down'
  muster token release 0f1e2d3c4b5a69780f1e2d3c4b5a6978 web1.example.net`

func addRelease(parent *kingpin.CmdClause, all cli.Verbs) {
	c := parent.Command("release", "Return a use that was claimed and never enrolled.").HelpLong(releaseHelp)
	token := tokenArg(c)
	var of, id string
	c.Arg("of", "Name of the node, or SHA-256 of its key.").Required().StringVar(&of)
	verb.Order(c, all, func(ctx context.Context, o *verb.Operator) (released *httpapi.Released, err error) {
		var path string
		if path, id, err = token.path(ctx, o); err != nil {
			return nil, err
		}
		return verb.Post[*httpapi.Released](ctx, o, path+"/release", httpapi.Release{Of: of, Why: o.Why})
	}, func(o *verb.Operator, answer *httpapi.Released) fmt.Stringer {
		released := answer.Released
		o.Say("%s of token %s given back", verb.Counted(len(released), "use", "uses"), id)
		return uses(released)
	})
}

const unfreezeHelp = `A recovery of the store (muster recovery --help) freezes all limited tokens that were
signed before it, because some of their uses may not be on record. This command sets
the uses that a token has left; it never gets more than it was signed for. A new token
is not frozen.

  muster token unfreeze 0f1e2d3c4b5a69780f1e2d3c4b5a6978 --left 3 --why counted
  muster token unfreeze provisioning.jwt --left 1`

func addUnfreeze(parent *kingpin.CmdClause, all cli.Verbs) {
	var left int
	c := parent.Command("unfreeze", "Set the uses that are left of a frozen token.").HelpLong(unfreezeHelp)
	token := tokenArg(c)
	cli.IntIn(cli.Flag(c, "left").Required(), &left, 0, math.MaxInt)
	verb.Order(c, all, func(ctx context.Context, o *verb.Operator) (map[string]any, error) {
		path, id, err := token.path(ctx, o)
		if err != nil {
			return nil, err
		}
		return map[string]any{"unfrozen": id, "left": left}, verb.Send(ctx, o, path+"/unfreeze",
			httpapi.Unfreezing{Left: left, Why: o.Why})
	}, func(o *verb.Operator, answer map[string]any) fmt.Stringer {
		o.Say("token %s may be used %s", answer["unfrozen"], verb.Counted(left, "more time", "more times"))
		return nil
	})
}
