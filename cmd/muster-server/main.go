// Command muster-server is the agent of a node alone: the verbs of `muster server`, without policies, broker and
// provisioner.
//
// It exits with 0 if a verb did what was asked, 1 if it failed, and 2 if the command line is wrong.
package main

import (
	"os"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
	"muster/server/servercmd"
)

// program precedes each line on standard error.
const program = "muster-server"

func main() {
	server := cli.Program{
		Name: program,
		Help: "The agent of a node: enrolls this machine and keeps it connected to its fleet.",
		Add:  addVerbs,
	}
	os.Exit(server.Run(os.Args[1:]))
}

func addVerbs(app *kingpin.Application, all cli.Verbs) {
	servercmd.AddRun(app, all)
	servercmd.AddDoctor(app, all)
	servercmd.AddCertificate(app, all)
	servercmd.AddCertmonger(app, all)
	servercmd.AddVersion(app, all)
}
