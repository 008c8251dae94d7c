package cli

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/agnivade/levenshtein"
	"github.com/alecthomas/kingpin/v2"
)

// mistake adds to what kingpin has against a command line the flag or command that may be meant.
func mistake(app *kingpin.Application, args []string, refused error) error {
	parsed, _ := app.ParseContext(args) // its error, if any, is the one that is refused
	at := strings.IndexAny(refused.Error(), `'"`)
	if parsed == nil || at < 0 {
		return refused
	}
	quoted := refused.Error()[at:]
	word, _, _ := strings.Cut(quoted[1:], quoted[:1])
	switch {
	case strings.HasPrefix(refused.Error(), "unknown"):
		if meant := nearest(word, flagsOf(app, parsed)); meant != "" {
			return fmt.Errorf("%w: did you mean %s?", refused, meant)
		}
	case strings.HasPrefix(refused.Error(), "expected command"):
		group, above := app.Model().CmdGroupModel, app.Name+" "
		if c := parsed.SelectedCommand; c != nil {
			group, above = c.Model().CmdGroupModel, above+c.FullCommand()+" "
		}
		if meant := nearest(word, commandsIn(group)); meant != "" {
			return fmt.Errorf("%w: did you mean `%s`?", refused, above+meant)
		}
	}
	return refused
}

// emptyValue reports the first flag or argument whose value is empty: an unset variable of a shell must not pass for
// a flag that was left out, which may mean all machines in place of some.
func emptyValue(app *kingpin.Application, args []string) error {
	parsed, err := app.ParseContext(args)
	if err != nil {
		return err
	}
	for _, e := range parsed.Elements {
		if e.Value == nil || *e.Value != "" {
			continue
		}
		switch clause := e.Clause.(type) {
		case *kingpin.FlagClause:
			return fmt.Errorf("--%s is empty: give it a value, or leave it out", clause.Model().Name)
		case *kingpin.ArgClause:
			if slices.Contains(args, "-") { // which kingpin makes empty
				return fmt.Errorf("<%s> is -, and no stream can be in its place: ./- is a file of that name", clause.Model().Name)
			}
			return fmt.Errorf("<%s> is empty: give it a value", clause.Model().Name)
		}
	}
	return nil
}

// nearest returns the one of the words that word begins, else the one that is at most two letters off; "" if none is.
func nearest(word string, words []string) string {
	best, meant := 3, ""
	for _, w := range words {
		if word != "" && strings.HasPrefix(w, word) {
			return w
		}
		if d := levenshtein.ComputeDistance(word, w); d < best && d <= utf8.RuneCountInString(word)/2 {
			best, meant = d, w
		}
	}
	return meant
}

// flagsOf returns the flags of the program and of the commands that were recognized, which are not hidden.
func flagsOf(app *kingpin.Application, parsed *kingpin.ParseContext) (names []string) {
	flags := slices.Clone(app.Model().Flags)
	for _, e := range parsed.Elements {
		if c, ok := e.Clause.(*kingpin.CmdClause); ok {
			flags = append(flags, c.Model().Flags...)
		}
	}
	for _, f := range flags {
		if !f.Hidden {
			names = append(names, "--"+f.Name)
		}
	}
	return names
}

// commandsIn returns the names of the commands of a group that are not hidden.
func commandsIn(group *kingpin.CmdGroupModel) (names []string) {
	for _, c := range group.Commands {
		if !c.Hidden {
			names = append(names, c.Name)
		}
	}
	return names
}

// each calls f for every command of a group and below it.
func each(group *kingpin.CmdGroupModel, f func(*kingpin.CmdModel)) {
	for _, c := range group.Commands {
		f(c)
		each(c.CmdGroupModel, f)
	}
}

// joinDashes writes a flag and the value after it that begins with a dash, such as "--uses -1", as one argument,
// "--uses=-1". Kingpin would take the value for a flag, and the "-" of "--input -", standard input, for an empty value.
func joinDashes(app *kingpin.ApplicationModel, args []string) (joined []string) {
	takes := make(map[string]bool)
	each(app.CmdGroupModel, func(c *kingpin.CmdModel) {
		for _, f := range c.Flags {
			takes["--"+f.Name] = takes["--"+f.Name] || !f.IsBoolFlag()
		}
	})
	for i := 0; i < len(args); i++ {
		switch {
		case args[i] == "--": // nothing after this is a flag
			return append(joined, args[i:]...)
		case i+1 < len(args) && takes[args[i]] && strings.HasPrefix(args[i+1], "-") && !strings.HasPrefix(args[i+1], "--"):
			joined = append(joined, args[i]+"="+args[i+1])
			i++
		default:
			joined = append(joined, args[i])
		}
	}
	return joined
}
