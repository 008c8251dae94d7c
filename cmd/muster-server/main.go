// Command muster-server is the node agent alone: the same verbs as `muster
// server` and `muster buildinfo`, without policies, broker and provisioner, so
// that it is small enough for every machine.
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
	"muster/server/servercmd"
)

// program is the name in front of everything on standard error.
const program = "muster-server"

func main() { os.Exit(run(os.Args[1:])) }

// run parses the arguments, runs the verb and returns the exit status.
func run(args []string) int {
	app := kingpin.New(program, "The node agent: enrolls this machine and keeps it connected to its fleet.")
	app.HelpFlag.Short('h')
	app.UsageTemplate(usageTemplate)
	setUsage(app, args)
	all := servercmd.Verbs{}
	servercmd.AddRun(app, all)
	servercmd.AddDoctor(app, all)
	servercmd.AddBuildInfo(app, all)

	verb, err := app.Parse(args)
	if err != nil {
		return cli.Report(os.Stderr, program, cli.Usage(program, err))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return cli.Report(os.Stderr, program, all[verb](ctx))
}

// usageTemplate is kingpin's, with the long help of a verb after the short.
var usageTemplate = strings.Replace(kingpin.DefaultUsageTemplate,
	`{{template "FormatUsage" .Context.SelectedCommand}}`,
	`{{template "FormatUsage" .Context.SelectedCommand}}{{with .Context.SelectedCommand.HelpLong}}
{{.}}
{{end}}`, 1)

// setUsage has help that was asked for be output, and help that kingpin prints
// because no verb was named an error. Either way kingpin then ends the process.
func setUsage(app *kingpin.Application, args []string) {
	asked := slices.ContainsFunc(args, func(a string) bool {
		return a == "-h" || a == "help" || strings.HasPrefix(a, "--help")
	})
	if asked {
		app.UsageWriter(os.Stdout)
		return
	}
	app.UsageWriter(os.Stderr)
	app.Terminate(func(int) { os.Exit(cli.ExitUsage) })
}
