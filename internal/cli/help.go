package cli

import (
	"cmp"
	"os"
	"slices"
	"strings"
	"text/template"

	"github.com/alecthomas/kingpin/v2"
)

// usageTemplate is kingpin's, with the long help of a command after the short.
var usageTemplate = strings.NewReplacer(
	`{{template "FormatUsage" .Context.SelectedCommand}}`,
	`{{template "FormatUsage" .Context.SelectedCommand}}{{with LongHelp .Context.SelectedCommand}}
{{.}}
{{end}}`,
	// Kingpin's blanks in front of a command are lost where it trims.
	`{{if not .Hidden -}}
  {{.FullCommand}}`,
	`{{if not .Hidden}}  {{.FullCommand}}`,
).Replace(kingpin.DefaultUsageTemplate)

// usageFuncs are what our templates call beyond kingpin's own.
var usageFuncs = template.FuncMap{"LongHelp": longHelp, "FlagsToTwoColumns": flagRows}

// flagRows makes a row of each flag: how it is written, and what it means, with its default and its variable.
func flagRows(flags []*kingpin.FlagModel) (rows [][2]string) {
	for _, f := range flags {
		if f.Hidden {
			continue
		}
		written := "--" + f.Name
		if f.Short != 0 {
			written = "-" + string(f.Short) + ", " + written
		}
		value, help, _ := FlagText(f.Name)
		if value != "" {
			written += "=" + value
		}
		help = cmp.Or(help, f.Help)
		if given := strings.Join(f.Default, ","); given != "" && value != "" {
			help += " (default " + given + ")"
		}
		if f.Envar != "" {
			help += " ($" + f.Envar + ")"
		}
		rows = append(rows, [2]string{written, help})
	}
	return rows
}

// exitHelp is for commands that say no more with their exit status.
const exitHelp = `Exits with 0 if that is done, 1 if it failed, 2 if the command line makes no
sense: nothing was done then.`

// longHelp is what a command says at length: what it exits with, too, if it is one
// that can be run.
func longHelp(c *kingpin.CmdModel) string {
	runs := len(c.Commands) == 0 || slices.ContainsFunc(c.Commands, func(below *kingpin.CmdModel) bool { return below.Default })
	switch {
	case !runs || strings.Contains(c.HelpLong, "Exits with"):
		return c.HelpLong
	case c.HelpLong == "":
		return exitHelp
	}
	return c.HelpLong + "\n\n" + exitHelp
}

// setUsage arranges for help that was asked for to be output, and for help
// that kingpin prints because no verb was named to be an error. Either way
// kingpin then ends the process.
func setUsage(app *kingpin.Application, args []string) {
	kingpin.EnableFileExpansion = false // --why '@anna asked for it' names no file
	app.HelpFlag.Short('h')
	app.UsageTemplate(usageTemplate).UsageFuncs(usageFuncs)
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
