package main

import (
	"context"
	"net/http"

	"github.com/alecthomas/kingpin/v2"

	"muster/provisioner/httpapi"
)

// acceptClockVerb is "muster provisioner accept-clock".
type acceptClockVerb struct{ operator }

const acceptClockHelp = `A provisioner whose clock is behind the newest time on record issues nothing: a
clock that goes back would bring expired tokens to life. If its clock is right
and it was the record that was ahead, because the clock had once been wrong the
other way, this says so.

  muster provisioner accept-clock --why 'the clock was a year ahead on Monday'
  muster provisioner accept-clock --json --config prov/provisioner.yaml`

func addProvisionerAcceptClock(parent *kingpin.CmdClause, all verbs) {
	v := &acceptClockVerb{}
	c := parent.Command("accept-clock", "Say that the clock is right, and the newest time on record is not.").HelpLong(acceptClockHelp)
	v.addChange(c, all)
	all[c.FullCommand()] = v.run
}

func (v *acceptClockVerb) run(ctx context.Context) error {
	if err := v.ask(ctx, http.MethodPost, "/v1/clock/accept", httpapi.Reason{Why: v.why}, nil); err != nil {
		return err
	}
	return v.printDone(map[string]bool{"accepted": true}, func() error { v.say("the clock is taken for right"); return nil })
}
