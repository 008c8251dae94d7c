package main

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/alecthomas/kingpin/v2"
)

// helpWidth is how long lines of a help may be, with their ends; chosen, so that
// the manual page, which indents them, fits into 100 columns.
const helpWidth = 88

// TestHelpHasExamplesThatParse reads every command's help as a stranger does, and
// has the real parser take each line that is shown as an example, and the command find
// nothing wrong with it. Nothing runs.
func TestHelpHasExamplesThatParse(t *testing.T) {
	t.Parallel()
	app := kingpin.New(program, "")
	addVerbs(app, verbs{})
	seen := 0
	var look func(*kingpin.CmdModel)
	look = func(c *kingpin.CmdModel) {
		if c.Hidden {
			return
		}
		for line := range strings.Lines(c.HelpLong) {
			if len(line) > helpWidth {
				t.Errorf("the help of %s has a line of %d characters, more than %d: %s", c.FullCommand, len(line), helpWidth, line)
			}
		}
		lines, own := examples(c.HelpLong), 0
		for _, line := range lines {
			words := shellWords(t, line)
			command, err := parsed(words[1:])
			if err != nil {
				t.Errorf("the help of %s has an example that makes no sense: %s: %v", c.FullCommand, line, err)
			}
			if command == c.FullCommand || strings.HasPrefix(command, c.FullCommand+" ") {
				own++
			}
		}
		runs := len(c.Commands) == 0
		for _, below := range c.Commands {
			look(below)
			runs = runs || below.Default
		}
		if c.HelpLong == "" {
			t.Errorf("%s says nothing at length", c.FullCommand)
		}
		if runs && (len(lines) < 2 || own == 0) {
			t.Errorf("the help of %s has %d examples, %d of them of %s; want two, and one of its own", c.FullCommand, len(lines), own, c.FullCommand)
		}
		seen++
	}
	for _, c := range app.Model().Commands {
		look(c)
	}
	if seen < 60 {
		t.Errorf("only %d commands were looked at", seen)
	}
}

// parsed returns the command of a command line, and the mistakes in it. Nothing runs.
func parsed(args []string) (string, error) {
	app, all := kingpin.New(program, "").Terminate(nil), verbs{}
	addVerbs(app, all)
	command, err := app.Parse(args)
	if err != nil {
		return command, err
	}
	if err = all.Mistakes(command); errors.Is(err, fs.ErrNotExist) {
		return command, nil // the example's files
	}
	return command, err
}

// TestFirstScreenFitsATerminal wants each visible command in one group at most, nouns in exactly one, and the whole in
// 50 lines of 80 columns.
func TestFirstScreenFitsATerminal(t *testing.T) {
	t.Parallel()
	app := kingpin.New(program, "")
	addVerbs(app, verbs{})
	lines := strings.Split(strings.TrimSuffix(cliProgram.FirstScreen(app.Model()), "\n"), "\n")
	if len(lines) > 50 {
		t.Errorf("%d lines, want at most 50", len(lines))
	}
	for _, line := range lines {
		if len(line) > 80 {
			t.Errorf("more than 80 columns: %s", line)
		}
	}
	times := map[string]int{}
	for _, g := range cliProgram.Groups {
		for _, name := range g.Commands {
			times[name]++
			if app.GetCommand(strings.Fields(name)[0]) == nil {
				t.Errorf("%s: no such command", name)
			}
		}
	}
	for _, c := range app.Model().Commands {
		if want := map[bool]int{false: 1, true: 0}[c.Hidden]; times[c.Name] != want {
			t.Errorf("%s is on the first screen %d times, want %d", c.Name, times[c.Name], want)
		}
	}
	for _, topic := range topics {
		for line := range strings.Lines(topic.Text) {
			if len(line) > helpWidth {
				t.Errorf("help %s: more than %d columns: %s", topic.Name, helpWidth-1, line)
			}
		}
		for _, line := range examples(topic.Text) {
			if command, err := parsed(shellWords(t, line)[1:]); err != nil {
				t.Errorf("help %s: %s: %s: %v", topic.Name, line, command, err)
			}
		}
	}
}

// examples returns the lines of a help that are to be typed, each whole: they are
// indented by two blanks and begin with the program's name.
func examples(help string) (lines []string) {
	open := false
	for line := range strings.Lines(help) {
		line = strings.TrimRight(line, "\n")
		switch {
		case open:
			lines[len(lines)-1] += " " + strings.TrimSpace(line)
		case strings.HasPrefix(line, "  "+program+" "):
			lines = append(lines, strings.TrimSpace(line))
		default:
			continue
		}
		last := &lines[len(lines)-1]
		if open = strings.HasSuffix(line, `\`); open {
			*last = strings.TrimSpace(strings.TrimSuffix(*last, `\`))
		}
	}
	return lines
}

// shellWords splits a line as a shell does, up to a redirection or a comment.
func shellWords(t *testing.T, line string) (words []string) {
	t.Helper()
	line, _, _ = strings.Cut(line, " # ")
	line, _, _ = strings.Cut(line, " > ")
	line, _, _ = strings.Cut(line, " 2> ")
	var word strings.Builder
	quote, in := rune(0), false
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '\'' || r == '"'):
			quote, in = r, true
		case quote == 0 && r == ' ':
			if in {
				words = append(words, word.String())
			}
			word.Reset()
			in = false
		case quote == 0 && strings.ContainsRune("*?;&|<>()$`{}", r):
			t.Errorf("a shell would not take %q as it is: %s", r, line)
		default:
			word.WriteRune(r)
			in = true
		}
	}
	if quote != 0 {
		t.Errorf("a quote is open in %s", line)
	}
	if in {
		words = append(words, word.String())
	}
	return words
}
