// Command muster enrolls fleets of nodes: it signs tokens, and runs the provisioner, the broker and the agent.
//
// It exits with 0 if a verb did what was asked, 1 if it failed, and 2 if the command line is wrong.
package main

import (
	"os"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/allow"
	"muster/cmd/muster/backup"
	"muster/cmd/muster/bench"
	"muster/cmd/muster/broker"
	"muster/cmd/muster/ca"
	"muster/cmd/muster/certificate"
	"muster/cmd/muster/completion"
	"muster/cmd/muster/demo"
	"muster/cmd/muster/events"
	"muster/cmd/muster/internal/verb"
	"muster/cmd/muster/jwt"
	"muster/cmd/muster/login"
	"muster/cmd/muster/migrate"
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

// program precedes each line on standard error.
const program = verb.Program

var cliProgram = cli.Program{
	Name: program,
	Help: "Zero-touch enrollment of machine fleets through NATS.",
	Groups: []cli.Group{
		{Title: "Start here", Commands: []string{"demo", "provisioner init", "server run", "migrate"}},
		{Title: "Tokens and signers", Commands: []string{"jwt", "token", "signer"}},
		{Title: "Nodes", Commands: []string{"node", "allow", "certificate", "events"}},
		{Title: "Policy and authority", Commands: []string{"policy", "ca", "recovery"}},
		{Title: "Operators", Commands: []string{"operator", "login", "session", "webhook", "pause", "resume"}},
		{Title: "Running it", Commands: []string{
			"provisioner", "broker", "server", "status", "backup", "restore", "bench", "version", "completion",
		}},
	},
	Topics: topics,
	Add:    addVerbs,
}

func main() { os.Exit(cliProgram.Run(os.Args[1:])) }

type verbs = cli.Verbs

func addVerbs(app *kingpin.Application, all verbs) {
	jwt.Add(app, all)
	provisioner.Add(app, all)
	migrate.Add(app, all)
	broker.Add(app, all)
	ca.Add(app, all)
	addServer(app, all)
	token.Add(app, all)
	signer.Add(app, all)
	node.Add(app, all)
	allow.Add(app, all)
	certificate.Add(app, all)
	events.Add(app, all)
	status.Add(app, all)
	pause.Add(app, all)
	operator.Add(app, all)
	login.Add(app, all)
	policy.Add(app, all)
	webhook.Add(app, all)
	backup.Add(app, all)
	recovery.Add(app, all)
	demo.Add(app, all)
	bench.Add(app, all)
	servercmd.AddVersion(app, all)
	completion.Add(app, all)
}

func addServer(app *kingpin.Application, all verbs) {
	c := app.Command("server", "Run the agent of a node.").
		HelpLong("The same verbs as those of the program muster-server, which is small enough for\nevery machine.")
	servercmd.AddRun(c, all)
	servercmd.AddDoctor(c, all)
	servercmd.AddCertificate(c, all)
	servercmd.AddCertmonger(c, all)
}
