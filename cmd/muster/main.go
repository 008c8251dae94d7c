// Command muster enrolls fleets of machines: it signs and inspects
// provisioning tokens, and runs the provisioner, the broker and the node
// agent. Run "muster --help" for its verbs.
//
// It exits with 0 if a verb did what was asked, 1 if it failed, and 2 if the
// command line makes no sense.
package main

import (
	"os"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/allow"
	"muster/cmd/muster/backup"
	"muster/cmd/muster/bench"
	"muster/cmd/muster/broker"
	"muster/cmd/muster/ca"
	"muster/cmd/muster/demo"
	"muster/cmd/muster/events"
	"muster/cmd/muster/internal/verb"
	"muster/cmd/muster/jwt"
	"muster/cmd/muster/node"
	"muster/cmd/muster/operator"
	"muster/cmd/muster/pause"
	"muster/cmd/muster/policy"
	"muster/cmd/muster/provisioner"
	"muster/cmd/muster/recovery"
	"muster/cmd/muster/signer"
	"muster/cmd/muster/status"
	"muster/cmd/muster/token"
	"muster/cmd/muster/webhook"
	"muster/internal/cli"
	"muster/server/servercmd"
)

// program is the name in front of everything on standard error.
const program = verb.Program

func main() {
	os.Exit(cli.Run(program, "Zero-touch enrollment of machine fleets.", os.Args[1:], addVerbs))
}

// verbs is what each verb adds itself to.
type verbs = cli.Verbs

func addVerbs(app *kingpin.Application, all verbs) {
	jwt.Add(app, all)
	provisioner.Add(app, all)
	broker.Add(app, all)
	ca.Add(app, all)
	addServer(app, all)
	token.Add(app, all)
	signer.Add(app, all)
	node.Add(app, all)
	allow.Add(app, all)
	events.Add(app, all)
	status.Add(app, all)
	pause.Add(app, all)
	operator.Add(app, all)
	policy.Add(app, all)
	webhook.Add(app, all)
	backup.Add(app, all)
	recovery.Add(app, all)
	demo.Add(app, all)
	bench.Add(app, all)
	servercmd.AddBuildInfo(app, all)
}

// addServer adds the verbs of the command muster-server.
func addServer(app *kingpin.Application, all verbs) {
	c := app.Command("server", "Run and examine the agent of this node.").
		HelpLong("The same as the program muster-server, which is small enough for every machine.")
	servercmd.AddRun(c, all)
	servercmd.AddDoctor(c, all)
}
