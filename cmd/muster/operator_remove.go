package main

import (
	"context"
	"net/http"
	"net/url"

	"github.com/alecthomas/kingpin/v2"

	"muster/provisioner/httpapi"
)

// operatorRemoveVerb is "muster operator remove".
type operatorRemoveVerb struct {
	operator
	name string
}

func addOperatorRemove(parent *kingpin.CmdClause, all verbs) {
	v := &operatorRemoveVerb{}
	c := parent.Command("remove", "Keep an operator out, within a second: certificate and tokens are worthless.")
	c.Arg("name", "As 'muster operator list' prints it.").Required().StringVar(&v.name)
	v.addChange(c)
	all[c.FullCommand()] = v.run
}

func (v *operatorRemoveVerb) run(ctx context.Context) error {
	if err := v.ask(ctx, http.MethodPost, "/v1/operators/"+url.PathEscape(v.name)+"/remove", httpapi.Reason{Why: v.why}, nil); err != nil {
		return err
	}
	return v.print(map[string]string{"operator": v.name, "done": "remove"}, func() error { v.say("%s is removed", v.name); return nil })
}
