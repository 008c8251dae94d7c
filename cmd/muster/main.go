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

	"muster/internal/cli"
)

// program is the name in front of everything on standard error.
const program = "muster"

func main() {
	os.Exit(cli.Run(program, "Zero-touch enrollment of machine fleets.", os.Args[1:], addVerbs))
}

// verbs is what each verb adds itself to.
type verbs = cli.Verbs

func addVerbs(app *kingpin.Application, all verbs) {
	addJWT(app, all)
	addProvisioner(app, all)
	addBroker(app, all)
	addCA(app, all)
	addServer(app, all)
	addToken(app, all)
	addSigner(app, all)
	addNode(app, all)
	addAllow(app, all)
	addEvents(app, all)
	addAttempts(app, all)
	addStatus(app, all)
	addComponents(app, all)
	addPause(app, all)
	addResume(app, all)
	addOperator(app, all)
	addPolicy(app, all)
	addWebhook(app, all)
	addBackup(app, all)
	addRestore(app, all)
	addDemo(app, all)
	addBench(app, all)
	addBuildInfo(app, all)
}
