package main

import (
	"github.com/alecthomas/kingpin/v2"

	"muster/server/servercmd"
)

// addServer adds "muster server" with its verbs, which are those of the command
// muster-server.
func addServer(app *kingpin.Application, all verbs) {
	c := app.Command("server", "Run and examine the agent of this node.").
		HelpLong("The same as the program muster-server, which is small enough for every machine.")
	servercmd.AddRun(c, all)
	addServerDoctor(c, all)
}
