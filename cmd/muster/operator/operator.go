// Package operator has "muster operator": who may operate the fleet over HTTPS.
package operator

import (
	"context"
	"io"
	"net/url"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/provisioner/httpapi"
	"muster/provisioner/operate"
)

const help = `Operators on other machines reach the provisioner over HTTPS (api.listen in
provisioner.yaml), by a certificate or by tokens that they sign. What is said here
is in force on every provisioner of the installation within a second.`

// Add adds the verbs.
func Add(app *kingpin.Application, all cli.Verbs) {
	c := app.Command("operator", "Manage users of the HTTPS API.").HelpLong(help)
	addAdd(c, all)
	addList(c, all)
	addRemove(c, all)
	addToken(c, all)
}

const listHelp = `Lists operators with their role, the kind of their key, the end of their certificate,
and the operator that added them. A process that can open the control socket of a
provisioner may do everything and is not listed.

  muster operator list
  muster operator list --json`

func addList(parent *kingpin.CmdClause, all cli.Verbs) {
	c := parent.Command("list", "List operators, removed ones too.").HelpLong(listHelp)
	verb.List(c, all, "/v1/operators", func(o *verb.Operator, operators []operate.OperatorInfo) io.WriterTo {
		if len(operators) == 0 {
			o.Say("there are no operators; a process that can open the control socket may do everything: 'muster operator add' adds one over HTTPS")
			return nil
		}
		t := cli.NewTable("OPERATOR", "ROLE", "KEY", "CERTIFICATE UNTIL", "BY")
		for _, o := range operators {
			ends := verb.Instant(o.Ends)
			if !o.Ends.IsZero() && time.Now().After(o.Ends) {
				ends += " (expired)"
			}
			role, by := string(o.Role), "added by "+o.By
			if o.Removed {
				role, by = "removed", "removed by "+o.By
			}
			t.Add(o.Name, role, o.KeyType, ends, by+verb.Because(o.Why))
		}
		return t
	})
}

const removeHelp = `Makes an operator's certificate and every token that they have signed worthless, on
every provisioner within a second. 'muster operator add' lets them in again, with a new
key.

  muster operator remove anna --why 'left the company'
  muster operator remove ben --json`

func addRemove(parent *kingpin.CmdClause, all cli.Verbs) {
	var name string
	c := parent.Command("remove", "Keep an operator out: certificate and tokens are worthless.").HelpLong(removeHelp)
	c.Arg("name", "As 'muster operator list' prints it.").Required().StringVar(&name)
	verb.Order(c, all, func(ctx context.Context, o *verb.Operator) (map[string]string, error) {
		err := verb.Send(ctx, o, "/v1/operators/"+url.PathEscape(name)+"/remove", httpapi.Reason{Why: o.Why})
		return map[string]string{"operator": name, "done": "remove"}, err
	}, func(o *verb.Operator, _ map[string]string) io.WriterTo {
		o.Say("%s is removed", name)
		return nil
	})
}
