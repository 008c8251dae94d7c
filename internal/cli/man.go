package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/alecthomas/kingpin/v2"
)

// A Command is one that can be run and that help shows.
type Command struct {
	*kingpin.CmdModel
	Usage    string               // full name and arguments, without the program
	AllFlags []*kingpin.FlagModel // its own ones after those of the nouns above; hidden ones are left out
}

// Commands returns the commands below a group, whose flags come in addition to the inherited ones.
func Commands(group *kingpin.CmdGroupModel, inherited ...*kingpin.FlagModel) (all []Command) {
	for _, c := range group.Commands {
		if !c.Hidden {
			all = append(all, commandsOf(c, inherited...)...)
		}
	}
	return all
}

// commandsOf returns a command, or those below it if it is a noun.
func commandsOf(c *kingpin.CmdModel, inherited ...*kingpin.FlagModel) []Command {
	flags := slices.DeleteFunc(slices.Concat(inherited, c.Flags), func(f *kingpin.FlagModel) bool { return f.Hidden })
	if len(c.Commands) > 0 {
		return Commands(c.CmdGroupModel, flags...)
	}
	usage := c.FullCommand
	if len(c.Args) > 0 {
		usage += " " + c.ArgSummary()
	}
	return []Command{{CmdModel: c, Usage: usage, AllFlags: flags}}
}

// FlagDefault returns the default of a flag with a value, as help shows it.
func FlagDefault(f *kingpin.FlagModel) string {
	if f.IsBoolFlag() {
		return ""
	}
	return strings.Join(f.Default, ",")
}

// manual returns the manual page that args ask for with --help-man, else "". Kingpin's own would be one page of
// thousands of lines.
func (p *Program) manual(app *kingpin.ApplicationModel, args []string) string {
	switch {
	case len(args) == 1 && args[0] == "--help-man":
		return p.manualOfProgram(app)
	case len(args) == 2 && args[1] == "--help-man":
		for _, c := range app.Commands {
			if c.Name == args[0] {
				page := newManual(p.Name+"-"+c.Name, c.Help)
				page.section("DESCRIPTION", c.HelpLong)
				page.commands(p.Name, commandsOf(c))
				return page.end(p.Name)
			}
		}
	}
	return ""
}

// manualOfProgram explains all commands of a program without groups. Else each noun has a page of its own.
func (p *Program) manualOfProgram(app *kingpin.ApplicationModel) string {
	page := newManual(p.Name, p.Help)
	all := Commands(app.CmdGroupModel)
	if p.Groups == nil {
		page.commands(p.Name, all)
		return page.end("muster")
	}
	page.heading("SH", "COMMANDS")
	for _, c := range all {
		noun, _, _ := strings.Cut(c.FullCommand, " ")
		page.item(p.Name+" "+c.Usage, c.Help+" See "+p.Name+"-"+noun+"(1).")
	}
	for _, t := range p.Topics {
		page.section(strings.ToUpper(strings.ReplaceAll(t.Name, "-", " ")), t.Text)
	}
	page.section("SEE ALSO", p.Name+"-server(1)")
	return page.b.String()
}

// A manual is a page in the language of man(7).
type manual struct{ b strings.Builder }

func newManual(name, help string) *manual {
	page := &manual{}
	fmt.Fprintf(&page.b, ".TH %s 1 \"\" \"%s\" \"User Commands\"\n.SH NAME\n%s \\- %s\n",
		roff(strings.ToUpper(name)), roff(Version()), roff(name), roff(strings.TrimSuffix(help, ".")))
	return page
}

func (m *manual) heading(macro, text string) { fmt.Fprintf(&m.b, ".%s \"%s\"\n", macro, roff(text)) }

func (m *manual) item(tag, text string) { fmt.Fprintf(&m.b, ".TP\n.B %s\n%s\n", roff(tag), roff(text)) }

func (m *manual) section(title, text string) {
	if text != "" {
		m.heading("SH", title)
		m.lines(text)
	}
}

func (m *manual) lines(text string) {
	fmt.Fprintf(&m.b, ".nf\n%s\n.fi\n", roff(strings.TrimRight(text, "\n")))
}

// commands explains each command, and then each flag once.
func (m *manual) commands(program string, all []Command) {
	m.heading("SH", "COMMANDS")
	meanings := map[string]string{}
	for _, c := range all {
		m.heading("SS", program+" "+c.Usage)
		fmt.Fprintln(&m.b, roff(c.Help))
		if c.HelpLong != "" {
			m.b.WriteString(".PP\n")
			m.lines(c.HelpLong)
		}
		var names []string
		for _, f := range c.AllFlags {
			value, help, _ := FlagText(f.Name)
			name := "--" + f.Name
			meanings[strings.TrimSuffix(name+"="+value, "=")] = help
			if given := FlagDefault(f); given != "" {
				name += "=" + given
			}
			names = append(names, name)
		}
		if len(names) > 0 {
			fmt.Fprintf(&m.b, ".PP\nFlags, with defaults: %s.\n", roff(strings.Join(names, ", ")))
		}
	}
	if len(meanings) > 0 {
		m.heading("SH", "FLAGS")
	}
	for _, flag := range slices.Sorted(maps.Keys(meanings)) {
		m.item(flag, meanings[flag])
	}
}

// end closes the page with the exit status and a reference to another page.
func (m *manual) end(also string) string {
	m.section("EXIT STATUS", exitHelp)
	m.section("SEE ALSO", also+"(1)")
	return m.b.String()
}

// roff escapes text: dashes stay dashes that can be copied, and no line of it is a request.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, `"`, `\(dq`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
