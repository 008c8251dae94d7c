package main

import (
	"context"
	"net/http"

	"github.com/alecthomas/kingpin/v2"

	"muster/provisioner"
	"muster/provisioner/httpapi"
)

// tokenRevokeVerb is "muster token revoke".
type tokenRevokeVerb struct{ tokenVerb }

const aboutRevoking = `Makes a token worthless on every provisioner within a second, for good. Machines
that enrolled with it stay as they are, and are listed: those that should not
be there are for 'muster node revoke'. A token that nobody has used yet is named
by its file.

  muster token revoke provisioning.jwt --why 'it was in a public image'
  muster token revoke 0f1e2d3c4b5a69780f1e2d3c4b5a6978`

func addTokenRevoke(parent *kingpin.CmdClause, all verbs) {
	v := &tokenRevokeVerb{}
	c := parent.Command("revoke", "Make a token worthless, everywhere within a second.").HelpLong(aboutRevoking)
	v.arg(c)
	v.addChange(c, all)
	all[c.FullCommand()] = v.run
}

func (v *tokenRevokeVerb) run(ctx context.Context) error {
	id, err := v.id(ctx)
	if err != nil {
		return err
	}
	var report httpapi.TokenReport
	if err := v.ask(ctx, http.MethodPost, "/v1/tokens/"+string(id)+"/revoke", httpapi.Reason{Why: v.why}, &report); err != nil {
		return err
	}
	return v.printDone(&report, func() error {
		enrolled := 0
		for _, u := range report.UsedBy {
			if u.State == provisioner.UseEnrolled {
				enrolled++
			}
		}
		v.say("token %s is revoked; %s enrolled with it before", id, counted(enrolled, "machine has", "machines have"))
		if len(report.UsedBy) == 0 {
			return nil
		}
		return writeUses(report.UsedBy)
	})
}
