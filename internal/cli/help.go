package cli

import (
	_ "embed"
	"fmt"
	"go/doc/comment"
	"os"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"text/template"

	"github.com/alecthomas/kingpin/v2"
)

// A Group is a paragraph of the first screen of help: commands by their full names.
type Group struct {
	Title    string
	Commands []string
}

// A Topic is a page of help about something that several verbs share.
type Topic struct{ Name, Text string }

// screenWidth is the width of the first screen of help, in columns.
const screenWidth = 80

// FirstScreen returns an overview of the commands that are not hidden.
func (p *Program) FirstScreen(app *kingpin.ApplicationModel) string {
	groups := p.Groups
	if groups == nil {
		groups = []Group{{"Commands", commandsIn(app.CmdGroupModel)}}
	}
	help := map[string]string{}
	each(app.CmdGroupModel, func(c *kingpin.CmdModel) {
		help[c.FullCommand] = c.Help
		if verbs := commandsIn(c.CmdGroupModel); len(verbs) > 0 {
			help[c.FullCommand] = strings.TrimSuffix(c.Help, ".") + ": " + strings.Join(verbs, ", ") + "."
		}
	})
	var b strings.Builder
	fmt.Fprintf(&b, "usage: %s <command> [<flags>] [<args> ...]\n\n%s\n", p.Name, p.Help)
	for _, g := range groups {
		fmt.Fprintf(&b, "\n%s\n", g.Title)
		width := 13 // of most names, with two blanks
		for _, name := range g.Commands {
			width = max(width, len(name)+2)
		}
		for _, name := range g.Commands {
			text := wrapped(help[name], screenWidth-width-2)
			text = strings.ReplaceAll(text, "\n", "\n"+strings.Repeat(" ", width+2))
			fmt.Fprintf(&b, "  %-*s%s\n", width, name, text)
		}
	}
	fmt.Fprintf(&b, "\n`%s help COMMAND` explains a command", p.Name)
	for i, t := range p.Topics {
		separator := ", "
		if i == 0 {
			separator = ", `" + p.Name + " help TOPIC` a topic:\n"
		}
		b.WriteString(separator + t.Name)
	}
	return b.String() + ".\n"
}

func wrapped(text string, width int) string {
	p := comment.Printer{TextWidth: width}
	return strings.TrimSpace(string(p.Text(new(comment.Parser).Parse(text))))
}

// page returns the first screen of help, a topic or a manual page if args ask for it, else "".
func (p *Program) page(app *kingpin.ApplicationModel, args []string) string {
	switch {
	case len(args) == 1 && (args[0] == "help" || args[0] == "--help" || args[0] == "-h"):
		return p.FirstScreen(app)
	case len(args) == 2 && args[0] == "help":
		for _, t := range p.Topics {
			if t.Name == args[1] {
				return t.Text
			}
		}
	}
	return p.manual(app, args)
}

// helpAsked writes "help COMMAND" as "COMMAND --help", so that an unknown command is a mistake like any other.
func helpAsked(args []string) []string {
	if len(args) == 0 || args[0] != "help" {
		return args
	}
	return append(slices.Clone(args[1:]), "--help")
}

// commandTemplate is the help of a command.
//
//go:embed help.tmpl
var commandTemplate string

func commandRows(group *kingpin.CmdGroupModel) (rows [][2]string) {
	for _, c := range group.Commands {
		if !c.Hidden {
			rows = append(rows, [2]string{c.Name, c.Help})
		}
	}
	return rows
}

// flagRows makes a row of each flag: its form, and its meaning with its default and environment variable.
func flagRows(flags []*kingpin.FlagModel) (rows [][2]string) {
	for _, f := range flags {
		value, help, ok := FlagText(f.Name)
		if f.Hidden || !ok {
			continue // also --help and --version, which are kingpin's
		}
		form := "--" + f.Name
		if f.Short != 0 {
			form = "-" + string(f.Short) + ", " + form
		}
		if value != "" {
			form += "=" + value
		}
		if given := strings.Join(f.Default, ","); given != "" && value != "" {
			help += " (default " + given + ")"
		}
		if f.Envar != "" {
			help += " ($" + f.Envar + ")"
		}
		rows = append(rows, [2]string{form, help})
	}
	return rows
}

// exitHelp is for commands whose help does not explain the exit status.
const exitHelp = `Exits with 0 on success, 1 on failure, 2 if the command line is wrong.`

// longHelp returns the long help of a command, with its exit statuses if it can be run.
func longHelp(c *kingpin.CmdModel) string {
	isDefault := func(below *kingpin.CmdModel) bool { return below.Default }
	runs := len(c.Commands) == 0 || slices.ContainsFunc(c.Commands, isDefault)
	switch {
	case !runs || strings.Contains(c.HelpLong, "Exits with"):
		return c.HelpLong
	case c.HelpLong == "":
		return exitHelp
	}
	return c.HelpLong + "\n\n" + exitHelp
}

// setUsage has help that was asked for printed to standard output, and help in place of a missing verb to standard
// error with [ExitUsage].
func (p *Program) setUsage(app *kingpin.Application, args []string) {
	kingpin.EnableFileExpansion = false // a reason such as --why '@anna asked for it' names no file
	app.HelpFlag.Short('h')
	app.UsageTemplate(commandTemplate).UsageFuncs(template.FuncMap{
		"LongHelp":    longHelp,
		"FlagRows":    flagRows,
		"CommandRows": commandRows,
		"FirstScreen": func() string { return p.FirstScreen(app.Model()) },
	})
	asked := slices.ContainsFunc(args, func(a string) bool {
		return a == "-h" || a == "--version" || strings.HasPrefix(a, "--help") || strings.HasPrefix(a, "--completion-")
	})
	if asked {
		app.UsageWriter(os.Stdout)
		return
	}
	app.UsageWriter(os.Stderr)
	app.Terminate(func(int) { os.Exit(ExitUsage) }) //nolint:forbidigo // in kingpin's place, which would exit with 0
}

// helpFor returns the command whose --help is most likely useful: the last that kingpin recognized.
func helpFor(app *kingpin.Application, args []string) string {
	parsed, _ := app.ParseContext(args) // its error is the one being reported
	if parsed == nil || parsed.SelectedCommand == nil {
		return app.Name
	}
	return app.Name + " " + strings.TrimSuffix(parsed.SelectedCommand.FullCommand(), " auto")
}

// labelWidth is the column of the colons: the longest label of Choria's layouts, "Provisioning Registration Data".
const labelWidth = 30

// Labels is a list of labeled values, aligned at the colon as Choria prints tokens. The zero value is ready to use.
type Labels struct {
	lines []string
}

// Add appends a value, made [Printable], and aligns its lines.
func (l *Labels) Add(label, value string) {
	value = strings.ReplaceAll(Printable(value), "\n", "\n"+strings.Repeat(" ", labelWidth+2))
	l.lines = append(l.lines, fmt.Sprintf("%*s: %s\n", labelWidth, label, value))
}

// AddIf appends a value that is not empty.
func (l *Labels) AddIf(label, value string) {
	if value != "" {
		l.Add(label, value)
	}
}

// Addf is Add with a format.
func (l *Labels) Addf(label, format string, args ...any) { l.Add(label, fmt.Sprintf(format, args...)) }

func (l *Labels) String() string { return strings.Join(l.lines, "") }

// A Table is rows of text in aligned columns. The zero value is ready to use.
type Table struct {
	rows [][]string
}

// NewTable returns a table with its first row.
func NewTable(header ...string) *Table {
	t := &Table{}
	t.Add(header...)
	return t
}

// Add appends a row of cells, made [Printable]. Rows may differ in length.
func (t *Table) Add(cells ...string) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = strings.ReplaceAll(Printable(c), "\n", " ")
	}
	t.rows = append(t.rows, row)
}

func (t *Table) String() string {
	var b strings.Builder
	columns := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range t.rows {
		_, _ = fmt.Fprintln(columns, strings.Join(row, "\t")) // writes to b never fail
	}
	_ = columns.Flush()
	return lineEnds.ReplaceAllString(b.String(), "\n")
}

var lineEnds = regexp.MustCompile(" *\n")

// Text is output that is made [Printable] and otherwise written as it is.
type Text string

func (t Text) String() string { return Printable(string(t)) }

// Parts are outputs with an empty line between.
type Parts []fmt.Stringer

func (p Parts) String() string {
	texts := make([]string, len(p))
	for i, part := range p {
		texts[i] = part.String()
	}
	return strings.Join(texts, "\n")
}
