// Package allow implements "muster allow": entries of the allow-list.
package allow

import (
	"context"
	"fmt"
	"time"

	"muster/provisioner/orders"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/internal/span"
	"muster/internal/wire"
	"muster/provisioner/httpapi"
	"muster/provisioner/operate"
)

const help = `Under the policy of 'muster provisioner init', a new node may enroll if its name is
on the allow-list. The entries are in the store, for every provisioner.`

// Add adds the verbs.
func Add(app *kingpin.Application, all cli.Verbs) {
	c := app.Command("allow", "Allow nodes by name before they ask.").HelpLong(help)
	addAdd(c, all)
	addImport(c, all)
	addList(c, all)
	addRemove(c, all)
}

const addHelp = `PATTERN is a name or a pattern: web*.example.net covers one label, **.example.net
any number of labels. An entry with the same pattern is replaced. A lone * covers
every name; it is for labs and needs --any-name. Without --expires the entry stays
until it is removed. A name for which keys wait needs 'muster node approve'.
An entry admits a Puppet agent that has no token only --without-token: then the
first machine that asks gets the name.

  muster allow add 'web*.example.net' --expires 2h --why 'rack 4'
  muster allow add build7.example.net --expires 1h`

// entry holds the flags of "muster allow add".
type entry struct {
	pattern   wire.Pattern
	expires   time.Duration
	iKnow     bool
	tokenless bool
}

func addAdd(parent *kingpin.CmdClause, all cli.Verbs) {
	e := &entry{}
	c := parent.Command("add", "Allow nodes by name.").HelpLong(addHelp)
	cli.Arg(c.Arg("pattern", "A name, or a pattern of names.").Required(), &e.pattern, wire.ParseNamePattern)
	cli.Until(cli.Flag(c, "expires"), &e.expires, time.Second, 100*span.Year)
	cli.Flag(c, "any-name").BoolVar(&e.iKnow)
	cli.Flag(c, "without-token").BoolVar(&e.tokenless)
	all.Check(c, func() error {
		if orders.AnyName(e.pattern) && e.pattern != "" && !e.iKnow {
			return fmt.Errorf("%w; to allow it, give --any-name", operate.ErrEverything)
		}
		return nil
	})
	verb.Order(c, all, func(ctx context.Context, o *verb.Operator) (*orders.Allowance, error) {
		return verb.Post[*orders.Allowance](ctx, o, "/v1/allow", httpapi.NewAllowance{
			AllowOrder: operate.AllowOrder{
				Pattern:      string(e.pattern),
				Expires:      e.expires,
				Everything:   e.iKnow,
				WithoutToken: e.tokenless,
			},
			Why: o.Why,
		})
	}, func(o *verb.Operator, a *orders.Allowance) fmt.Stringer {
		if orders.AnyName(a.Pattern) {
			o.Say("warning: %v; `muster allow remove '%s'` ends the alarm about it", operate.ErrEverything, a.Pattern)
		}
		o.Say("%s may enroll", a.Pattern)
		return nil
	})
}

const listHelp = `Lists all entries, expired ones too: the operator that added each, when and why.
SOURCE is the list that an entry was imported from.

  muster allow list
  muster allow list -o json`

func addList(parent *kingpin.CmdClause, all cli.Verbs) {
	c := parent.Command("list", "List entries.").HelpLong(listHelp)
	verb.List(c, all, verb.Listed[*orders.Allowance]("/v1/allow"),
		func(o *verb.Operator, list []*orders.Allowance) verb.Shown {
			for _, a := range list {
				if orders.AnyName(a.Pattern) && !a.Over(time.Now()) {
					o.Say("warning: %s: %v", a.Pattern, operate.ErrEverything)
				}
			}
			return &verb.Rows[*orders.Allowance]{
				Rows:    list,
				Noun:    "allow",
				Empty:   "the allow-list is empty",
				Columns: columns,
			}
		},
	)
}

var columns = []cli.Column[*orders.Allowance]{
	{Title: "PATTERN", Value: func(a *orders.Allowance) any { return a.Pattern }},
	{Title: "STATE", Value: func(a *orders.Allowance) any {
		if a.Over(time.Now()) {
			return "expired"
		}
		return "good"
	}},
	{Title: "EXPIRES", Value: func(a *orders.Allowance) any { return a.ExpiresAt }},
	{Title: "TOKEN", Value: func(a *orders.Allowance) any {
		if a.WithoutToken {
			return "not needed"
		}
		return "needed"
	}},
	{Title: "SOURCE", Value: func(a *orders.Allowance) any { return a.Source }},
	{Title: "ADDED", Value: func(a *orders.Allowance) any { return a.At }},
	{Title: "BY", Value: func(a *orders.Allowance) any { return a.By }},
	{Title: "WHY", Value: func(a *orders.Allowance) any { return a.Why }},
}

const removeHelp = `Removes an entry, on every provisioner within a second. Nodes that have enrolled
stay in the fleet. PATTERN is written as 'muster allow list' prints it.

  muster allow remove 'web*.example.net' --why 'rack 4 is done'
  muster allow remove build7.example.net`

func addRemove(parent *kingpin.CmdClause, all cli.Verbs) {
	var pattern wire.Pattern
	c := parent.Command("remove", "Remove an entry.").HelpLong(removeHelp)
	cli.Arg(c.Arg("pattern", "The pattern of the entry.").Required(), &pattern, wire.ParseNamePattern)
	verb.Order(c, all, func(ctx context.Context, o *verb.Operator) (map[string]string, error) {
		return map[string]string{"removed": string(pattern)}, verb.Send(ctx, o, "/v1/allow/remove",
			httpapi.OldAllowance{Pattern: string(pattern), Why: o.Why})
	}, func(o *verb.Operator, _ map[string]string) fmt.Stringer {
		o.Say("%s is removed from the allow-list", pattern) // other entries may cover the same names
		return nil
	})
}
