// Package operator implements "muster operator": users of the HTTPS API.
package operator

import (
	"context"
	"fmt"
	"net/url"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/provisioner/httpapi"
	"muster/provisioner/operate"
)

const help = `Operators on other machines reach the provisioner over HTTPS (api.listen in
provisioner.yaml), with a certificate or with tokens that they sign. Changes are in
force on every provisioner within a second.`

// Add adds the verbs.
func Add(app *kingpin.Application, all cli.Verbs) {
	c := app.Command("operator", "Manage users of the HTTPS API.").HelpLong(help)
	addAdd(c, all)
	addList(c, all)
	addRemove(c, all)
	addToken(c, all)
}

const listHelp = `Lists operators: role, type of key, end of the certificate, and the operator that
added each. A process that can open the control socket of a provisioner may do
everything and is not listed.

  muster operator list
  muster operator list -o json`

func addList(parent *kingpin.CmdClause, all cli.Verbs) {
	c := parent.Command("list", "List operators, removed ones too.").HelpLong(listHelp)
	verb.ListOf(c, all, "/v1/operators", "no operators are known: `muster operator add` adds one; "+
		"on this machine, root and the provisioner's user need none", columns)
}

var columns = []cli.Column[operate.OperatorInfo]{
	{Title: "OPERATOR", Value: func(o operate.OperatorInfo) any { return o.Name }},
	{Title: "ROLE", Value: func(o operate.OperatorInfo) any {
		if o.Removed {
			return "removed"
		}
		return o.Role
	}},
	{Title: "NAMES", Wide: true, Value: func(o operate.OperatorInfo) any { return verb.Joined(o.Names) }},
	{Title: "SITES", Wide: true, Value: func(o operate.OperatorInfo) any { return verb.Joined(o.Sites) }},
	{Title: "KEY", Value: func(o operate.OperatorInfo) any { return o.KeyType }},
	{Title: "CERTIFICATE UNTIL", Value: func(o operate.OperatorInfo) any { return o.Ends }},
	{Title: "CHANGED", Value: func(o operate.OperatorInfo) any { return o.At }},
	{Title: "BY", Value: func(o operate.OperatorInfo) any { return o.By }},
	{Title: "WHY", Value: func(o operate.OperatorInfo) any { return o.Why }},
}

const removeHelp = `Makes the certificate of an operator, and all tokens signed with the operator's key,
invalid on every provisioner within a second. 'muster operator add' adds the operator
again, with a new key.

  muster operator remove anna --why 'left the company'
  muster operator remove ben`

func addRemove(parent *kingpin.CmdClause, all cli.Verbs) {
	var name string
	c := parent.Command("remove", "Remove an operator: certificate and tokens become invalid.").HelpLong(removeHelp)
	c.Arg("name", "Name of the operator.").Required().StringVar(&name)
	verb.Order(c, all, func(ctx context.Context, o *verb.Operator) (map[string]string, error) {
		err := verb.Send(ctx, o, "/v1/operators/"+url.PathEscape(name)+"/remove", httpapi.Reason{Why: o.Why})
		return map[string]string{"operator": name, "done": "remove"}, err
	}, func(o *verb.Operator, _ map[string]string) fmt.Stringer {
		o.Say("%s is removed", name)
		return nil
	})
}
