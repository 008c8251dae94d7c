// Command muster-server is the node agent alone: the same verbs as `muster
// server` and `muster buildinfo`, without policies, broker and provisioner, so
// that it is small enough for every machine.
//
// It exits with 0 if a verb did what was asked, 1 if it failed, and 2 if the
// command line makes no sense.
package main

import (
	"os"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
	"muster/server/servercmd"
)

// program is the name in front of everything on standard error.
const program = "muster-server"

func main() {
	os.Exit(cli.Run(program, "The node agent: enrolls this machine and keeps it connected to its fleet.", os.Args[1:], addVerbs))
}

func addVerbs(app *kingpin.Application, all cli.Verbs) {
	servercmd.AddRun(app, all)
	servercmd.AddDoctor(app, all)
	servercmd.AddBuildInfo(app, all)
}
