// Command muster enrolls fleets of machines: it signs and inspects
// provisioning tokens, and runs the provisioner, the broker and the node
// agent. Run "muster --help" for its verbs.
//
// It exits with 0 if a verb did what was asked, 1 if it failed, and 2 if the
// command line makes no sense.
package main

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
)

// program is the name in front of everything on standard error.
const program = "muster"

func main() { os.Exit(run(os.Args[1:])) }

// verbs maps the full name of a command, as kingpin spells it, to what it
// does. Kingpin could run verbs itself, inside Parse, but then a failed verb
// and a bad command line would come back as the same kind of error. So it only
// parses.
type verbs map[string]func(context.Context) error

// run parses the arguments, runs the verb and returns the exit status.
func run(args []string) int {
	app := kingpin.New(program, "Zero-touch enrollment of machine fleets.")
	app.HelpFlag.Short('h')
	app.UsageTemplate(usageTemplate)
	app.Version(cli.Version())
	setUsage(app, args)

	all := verbs{}
	addJWT(app, all)
	addProvisioner(app, all)
	addServer(app, all)
	addDemo(app, all)
	addBuildInfo(app, all)

	verb, err := app.Parse(args)
	if err != nil {
		return cli.Report(os.Stderr, program, cli.Usage(helpFor(app, args), err))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return cli.Report(os.Stderr, program, all[verb](ctx))
}

// usageTemplate is kingpin's, with the long help of a command after the short.
var usageTemplate = strings.Replace(kingpin.DefaultUsageTemplate,
	`{{template "FormatUsage" .Context.SelectedCommand}}`,
	`{{template "FormatUsage" .Context.SelectedCommand}}{{with .Context.SelectedCommand.HelpLong}}
{{.}}
{{end}}`, 1)

// setUsage arranges for help that was asked for to be output, and for help
// that kingpin prints because no verb was named to be an error. Either way
// kingpin then ends the process.
func setUsage(app *kingpin.Application, args []string) {
	asked := slices.ContainsFunc(args, func(a string) bool {
		return a == "-h" || a == "help" || a == "--version" || strings.HasPrefix(a, "--help") || strings.HasPrefix(a, "--completion-")
	})
	if asked {
		app.UsageWriter(os.Stdout)
		return
	}
	app.UsageWriter(os.Stderr)
	app.Terminate(func(int) { os.Exit(cli.ExitUsage) })
}

// helpFor returns the command whose --help is most likely of use: the one that
// kingpin had recognized when it gave up.
func helpFor(app *kingpin.Application, args []string) string {
	parsed, _ := app.ParseContext(args) // its error is the one being reported
	if parsed == nil || parsed.SelectedCommand == nil {
		return program
	}
	return program + " " + strings.TrimSuffix(parsed.SelectedCommand.FullCommand(), " auto")
}
