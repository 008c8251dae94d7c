package cli

import (
	"os"
	"slices"
	"strings"
	"text/template"
	"unicode"
	"unicode/utf8"

	"github.com/alecthomas/kingpin/v2"
)

// usageTemplate is kingpin's, with the long help of a command after the short,
// and the flags in groups.
var usageTemplate = strings.NewReplacer(
	`{{template "FormatUsage" .Context.SelectedCommand}}`,
	`{{template "FormatUsage" .Context.SelectedCommand}}{{with LongHelp .Context.SelectedCommand}}
{{.}}
{{end}}`,
	// Kingpin's blanks in front of a command are lost where it trims.
	`{{if not .Hidden -}}
  {{.FullCommand}}`,
	`{{if not .Hidden}}  {{.FullCommand}}`,
	`Flags:
{{.Context.Flags|FlagsToTwoColumns|FormatTwoColumns}}
`,
	`{{range FlagGroups .App .Context.SelectedCommand .Context.Flags -}}
{{.Title}}:
{{.Flags|FlagsToTwoColumns|FormatTwoColumns}}
{{end -}}
`,
).Replace(kingpin.DefaultUsageTemplate)

// usageFuncs are what our templates call beyond kingpin's own.
var usageFuncs = template.FuncMap{"FlagGroups": flagGroups, "LongHelp": longHelp}

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

// flagGroup is a paragraph of flags in a command's help.
type flagGroup struct {
	Title string
	Flags []*kingpin.FlagModel
}

// flagGroups arranges the flags for the help of a command, nil if of the
// program. A flag that is defined for several verbs together, and has meaning
// for some of them only, names those in front of its help: "Sign, keys: …".
// The help of one of the verbs has its own flags alone; any other has them all,
// by verb.
func flagGroups(app *kingpin.ApplicationModel, c *kingpin.CmdModel, flags []*kingpin.FlagModel) []flagGroup {
	names := make(map[string]bool)
	each(app.CmdGroupModel, func(c *kingpin.CmdModel) { names[c.Name] = true })
	marked := func(f *kingpin.FlagModel) []string { v, _ := verbsOf(f.Help, names); return v }
	alone := c != nil && slices.ContainsFunc(flags, func(f *kingpin.FlagModel) bool { return slices.Contains(marked(f), c.Name) })

	groups := []flagGroup{{Title: "Flags"}}
	for _, f := range flags {
		verbs, help := verbsOf(f.Help, names)
		if f.Hidden || alone && verbs != nil && !slices.Contains(verbs, c.Name) {
			continue
		}
		plain := *f
		plain.Help = help
		title := "Flags"
		if verbs != nil && !alone {
			title += " of " + strings.Join(verbs, " and ")
		}
		i := slices.IndexFunc(groups, func(g flagGroup) bool { return g.Title == title })
		if i < 0 {
			i = len(groups)
			groups = append(groups, flagGroup{Title: title})
		}
		groups[i].Flags = append(groups[i].Flags, &plain)
	}
	return slices.DeleteFunc(groups, func(g flagGroup) bool { return len(g.Flags) == 0 })
}

// verbsOf takes the help of a flag apart: the commands that it is for, nil if
// it names none, and the rest as a sentence.
func verbsOf(help string, commands map[string]bool) (verbs []string, rest string) {
	head, rest, ok := strings.Cut(help, ": ")
	if !ok {
		return nil, help
	}
	verbs = strings.Split(strings.ToLower(head), ", ")
	if slices.ContainsFunc(verbs, func(v string) bool { return !commands[v] }) {
		return nil, help
	}
	first, size := utf8.DecodeRuneInString(rest)
	return verbs, string(unicode.ToUpper(first)) + rest[size:]
}
