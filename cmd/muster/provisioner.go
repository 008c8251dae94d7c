package main

import "github.com/alecthomas/kingpin/v2"

// addProvisioner adds "muster provisioner" with its verbs.
func addProvisioner(app *kingpin.Application, all verbs) {
	c := app.Command("provisioner", "Set up and run a provisioner.").
		HelpLong("'init' makes all that a provisioner needs, 'run' serves with it: the README walks\nthrough both in ten minutes.")
	addProvisionerInit(c, all)
	addProvisionerRun(c, all)
	addProvisionerAcceptClock(c, all)
}
