// Package token implements "muster token": the tokens that nodes have enrolled with.
package token

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"muster/provisioner/operate"
	"muster/provisioner/trust"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/signing"
	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/internal/wire"
	"muster/provisioner/httpapi"
)

const help = `These verbs ask the provisioner on this machine, or the one of --url. A token is
named by its id, 32 hex digits as 'muster token list' prints it, or by its file, also
if it was never used.`

// Add adds the verbs.
func Add(app *kingpin.Application, all cli.Verbs) {
	c := app.Command("token", "Manage used tokens.").HelpLong(help)
	addList(c, all)
	addShow(c, all)
	addRevoke(c, all)
	addRelease(c, all)
	addUnfreeze(c, all)
}

// one is a token that is named on the command line.
type one struct{ name string }

func tokenArg(c *kingpin.CmdClause) *one {
	t := &one{}
	c.Arg("token", "Id of the token, or its file.").HintAction(verb.TokenIDs).Required().StringVar(&t.name)
	return t
}

// path returns the API's path of the token, and its id.
func (t *one) path(ctx context.Context, o *verb.Operator) (path, id string, err error) {
	const tokens = "/v1/tokens/" //nolint:gosec // a path, and no credential
	if id := wire.FoldHash(t.name); len(id) == 32 && strings.Trim(id, "0123456789abcdef") == "" {
		return tokens + id, id, nil
	}
	if _, err := os.Stat(t.name); err != nil {
		return "", "", fmt.Errorf("%q is neither the id of a token, 32 lower-case hex digits, nor a file with one",
			t.name)
	}
	text, err := signing.ReadToken(t.name)
	if err != nil {
		return "", "", err
	}
	named, err := verb.Post[httpapi.TokenID](ctx, o, "/v1/tokens/identify", httpapi.TokenText{Token: wire.Secret(text)})
	if err != nil {
		return "", "", fmt.Errorf("%s: %w", t.name, err)
	}
	return tokens + string(named.ID), string(named.ID), nil
}

func usesText(t *operate.TokenSummary) string {
	if t.Signer == "" {
		return "-" // revoked before its first use: the limits are unknown
	}
	if t.Uses == 0 {
		return "unlimited"
	}
	return fmt.Sprintf("%d of %d left", t.Remaining(), t.Uses)
}

func stateOf(t *operate.TokenSummary, now time.Time) string {
	switch {
	case t.Revoked != nil:
		return "revoked"
	case !t.ExpiresAt.IsZero() && !now.Before(t.ExpiresAt):
		return "expired"
	case t.UsedUp():
		return "used up"
	case t.Frozen:
		return "frozen"
	default:
		return "good"
	}
}

// forText returns the nodes and the site that a token is for.
func forText(t *operate.TokenSummary) string {
	var parts []string
	for _, p := range t.Identities {
		parts = append(parts, string(p))
	}
	if t.Site != "" {
		parts = append(parts, "site "+string(t.Site))
	}
	if len(parts) == 0 && t.Signer != "" {
		return "any"
	}
	return strings.Join(parts, ", ")
}

func uses(list []trust.TokenUse) *cli.Table {
	t := cli.NewTable("NODE", "USE", "AT", "FROM", "KEY")
	for _, u := range list {
		state := string(u.State)
		if u.State == trust.UseReleased {
			by := cmp.Or(u.ReleasedBy, "the refused attempt")
			state = fmt.Sprintf("released %s by %s%s", verb.Instant(u.ReleasedAt), by, verb.Because(u.Why))
		}
		t.Add(string(u.Identity), state, verb.Instant(u.At), u.Source, verb.Short(u.Key))
	}
	return t
}
