package main

import (
	"context"
	"net/http"
	"os"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
	"muster/provisioner"
)

// operatorListVerb is "muster operator list".
type operatorListVerb struct{ operator }

const operatorListHelp = `Lists who may operate over HTTPS, as what, with which kind of key, until when their
certificate lasts, and who has let them in. Whoever may open the control socket of a
provisioner can do all and is not listed.

  muster operator list
  muster operator list --json`

func addOperatorList(parent *kingpin.CmdClause, all verbs) {
	v := &operatorListVerb{}
	c := parent.Command("list", "List operators, removed ones too.").HelpLong(operatorListHelp)
	v.add(c, all)
	all[c.FullCommand()] = v.run
}

func (v *operatorListVerb) run(ctx context.Context) error {
	var operators []provisioner.OperatorInfo
	if err := v.ask(ctx, http.MethodGet, "/v1/operators", nil, &operators); err != nil {
		return err
	}
	return v.print(operators, func() error {
		if len(operators) == 0 {
			v.say("there are no operators; whoever may open the control socket can do all: 'muster operator add' lets others in over HTTPS")
			return nil
		}
		var t cli.Table
		t.Add("OPERATOR", "ROLE", "KEY", "CERTIFICATE UNTIL", "BY")
		for _, o := range operators {
			ends := "-"
			if !o.Ends.IsZero() {
				ends = instant(o.Ends)
				if time.Now().After(o.Ends) {
					ends += " (expired)"
				}
			}
			role, by := string(o.Role), "added by "+o.By
			if o.Removed {
				role, by = "removed", "removed by "+o.By
			}
			t.Add(o.Name, role, o.KeyType, ends, by+because(o.Why))
		}
		_, err := t.WriteTo(os.Stdout)
		return err
	})
}
