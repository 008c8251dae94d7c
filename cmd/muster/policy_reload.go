package main

import (
	"context"
	"net/http"

	"github.com/alecthomas/kingpin/v2"

	"muster/provisioner"
	"muster/provisioner/httpapi"
)

// policyReloadVerb is "muster policy reload".
type policyReloadVerb struct{ operator }

const policyReloadHelp = `Has one provisioner read its policy again, now rather than when it notices by itself:
the one that runs on this machine, or with --url one elsewhere. A policy that does not
compile, or whose tests fail, is refused: the one before stays in use, an alarm stands
until the files are right again, and this exits with 1.

  muster policy reload
  muster policy reload --why 'racks 4 to 9'`

func addPolicyReload(parent *kingpin.CmdClause, all verbs) {
	v := &policyReloadVerb{}
	c := parent.Command("reload", "Have the provisioner read its policy again.").HelpLong(policyReloadHelp)
	v.addChange(c, all)
	all[c.FullCommand()] = v.run
}

func (v *policyReloadVerb) run(ctx context.Context) error {
	var in provisioner.PolicyInUse
	if err := v.ask(ctx, http.MethodPost, "/v1/policy/reload", httpapi.Reason{Why: v.why}, &in); err != nil {
		return err
	}
	return v.printDone(&in, func() error {
		if in.Before == in.Digest {
			v.say("policy %.12s is in use, as before", in.Digest)
		} else {
			v.say("policy %.12s is in use, in place of %.12s", in.Digest, in.Before)
		}
		return nil
	})
}
