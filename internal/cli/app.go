package cli

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kingpin/v2"
)

// Verbs maps the full name of a command, as kingpin spells it, to what it
// does. Kingpin could run verbs itself, inside Parse, but then a failed verb
// and a bad command line would come back as the same kind of error. So it only
// parses.
type Verbs = map[string]func(context.Context) error

// Run parses the arguments, runs the verb that add has put into its map, and
// returns the exit status. The verb's context ends with SIGINT and SIGTERM.
// What goes wrong is reported on standard error.
func Run(program, help string, args []string, add func(*kingpin.Application, Verbs)) int {
	app := kingpin.New(program, help)
	app.HelpFlag.Short('h')
	app.UsageTemplate(usageTemplate)
	app.Version(Version())
	setUsage(app, args)

	all := Verbs{}
	add(app, all)
	verb, err := app.Parse(args)
	if err != nil {
		return Report(os.Stderr, program, Usage(helpFor(app, args), err))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return Report(os.Stderr, program, all[verb](ctx))
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
	app.Terminate(func(int) { os.Exit(ExitUsage) }) //nolint:forbidigo // in kingpin's place, which would exit with 0
}

// helpFor returns the command whose --help is most likely of use: the one that
// kingpin had recognized when it gave up.
func helpFor(app *kingpin.Application, args []string) string {
	parsed, _ := app.ParseContext(args) // its error is the one being reported
	if parsed == nil || parsed.SelectedCommand == nil {
		return app.Name
	}
	return app.Name + " " + strings.TrimSuffix(parsed.SelectedCommand.FullCommand(), " auto")
}
