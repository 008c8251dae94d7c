package main

import (
	"context"
	"net/http"
	"net/url"
	"slices"

	"github.com/alecthomas/kingpin/v2"

	"muster/provisioner"
	"muster/provisioner/httpapi"
)

// operatorRemoveVerb is "muster operator remove".
type operatorRemoveVerb struct {
	operator
	name string
}

const operatorRemoveHelp = `Makes an operator's certificate and every token that they have signed worthless, on
every provisioner within a second. 'muster operator add' lets them in again, with a new
key.

  muster operator remove anna --why 'left the company'
  muster operator remove ben --json`

func addOperatorRemove(parent *kingpin.CmdClause, all verbs) {
	v := &operatorRemoveVerb{}
	c := parent.Command("remove", "Keep an operator out: certificate and tokens are worthless.").HelpLong(operatorRemoveHelp)
	c.Arg("name", "As 'muster operator list' prints it.").Required().StringVar(&v.name)
	v.addChange(c, all)
	all[c.FullCommand()] = v.run
}

func (v *operatorRemoveVerb) run(ctx context.Context) error {
	last := v.lastAdmin(ctx) // asked first: who removes themselves cannot ask any more
	if err := v.ask(ctx, http.MethodPost, "/v1/operators/"+url.PathEscape(v.name)+"/remove", httpapi.Reason{Why: v.why}, nil); err != nil {
		return err
	}
	return v.printDone(map[string]string{"operator": v.name, "done": "remove"}, func() error {
		v.say("%s is removed", v.name)
		if last {
			v.say("no admin is left: 'muster operator add' on a provisioner's machine makes one")
		}
		return nil
	})
}

// lastAdmin reports whether nobody else is admin; not if that cannot be found out.
func (v *operatorRemoveVerb) lastAdmin(ctx context.Context) bool {
	var operators []provisioner.OperatorInfo
	if v.ask(ctx, http.MethodGet, "/v1/operators", nil, &operators) != nil {
		return false
	}
	admins := slices.DeleteFunc(operators, func(o provisioner.OperatorInfo) bool { return o.Removed || o.Role != provisioner.RoleAdmin })
	return len(admins) == 1 && admins[0].Name == v.name
}
