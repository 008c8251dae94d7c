package cli

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/agnivade/levenshtein"
	"github.com/alecthomas/kingpin/v2"
)

// mistake says in our words why kingpin refuses a command line: it names the first thing that is wrong.
func mistake(app *kingpin.Application, args []string, refused error) error {
	parsed, _ := app.ParseContext(args) // its error, if any, is the one that is refused
	if parsed == nil {
		return refused
	}
	kind, name := refused.Error(), ""
	if at := strings.IndexAny(kind, `'"`); at >= 0 {
		name, _, _ = strings.Cut(kind[at+1:], kind[at:at+1])
		kind = strings.TrimSpace(kind[:at])
	}
	switch kind {
	case "unknown long flag", "unknown short flag":
		return noFlag(app, parsed, name)
	case "expected argument for flag":
		return fmt.Errorf("%s wants a value", name)
	case "flag":
		return fmt.Errorf("--%s is given more than once", name)
	case "required flag(s)":
		return fmt.Errorf("%s is missing%s", name, helpOfFlag(flagsOf(app, parsed), name))
	case "required argument":
		return fmt.Errorf("<%s> is missing%s", name, helpOfArgument(parsed, name))
	case "must select a subcommand of":
		group := parsed.SelectedCommand.Model().CmdGroupModel
		return fmt.Errorf("`%s %s` is followed by a command: %s", app.Name, name, either(commandsIn(group)))
	case "expected command but got":
		return noCommand(app, parsed, name)
	case "unexpected argument":
		return fmt.Errorf("unexpected argument %q", name)
	}
	if what, ok := strings.CutPrefix(kind, "unexpected "); ok {
		return fmt.Errorf("unexpected argument %q", what)
	}
	return refused // a value that its flag or argument does not take: the error names both
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
			return fmt.Errorf("<%s> is empty%s", clause.Model().Name, clauseOf(clause.Model().Help))
		}
	}
	return nil
}

// noFlag says that there is no such flag, and which one may be meant.
func noFlag(app *kingpin.Application, parsed *kingpin.ParseContext, flag string) error {
	var names []string
	for _, f := range flagsOf(app, parsed) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	}
	if meant := nearest(strings.TrimLeft(flag, "-"), names); meant != "" {
		return fmt.Errorf("no flag %s: did you mean --%s?", flag, meant)
	}
	if parsed.SelectedCommand == nil {
		return fmt.Errorf("no flag %s in front of a command: write it behind that", flag)
	}
	return fmt.Errorf("no flag %s", flag)
}

// noCommand says that there is no such command, and which one may be meant.
func noCommand(app *kingpin.Application, parsed *kingpin.ParseContext, word string) error {
	group, above := app.Model().CmdGroupModel, ""
	if c := parsed.SelectedCommand; c != nil {
		group, above = c.Model().CmdGroupModel, c.FullCommand()+" "
	}
	if meant := nearest(word, commandsIn(group)); meant != "" {
		return fmt.Errorf("no command %q: did you mean `%s %s%s`?", above+word, app.Name, above, meant)
	}
	var elsewhere []string
	each(app.Model().CmdGroupModel, func(c *kingpin.CmdModel) {
		if c.Name == word && !c.Hidden {
			elsewhere = append(elsewhere, app.Name+" "+c.FullCommand)
		}
	})
	if len(elsewhere) > 0 {
		return fmt.Errorf("no command %q: there is `%s`", above+word, elsewhere[0])
	}
	return fmt.Errorf("no command %q", above+word)
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

// DidYouMean returns what to append to a message that word is none of the words, which are codes and the like.
func DidYouMean[S ~string](word string, words []S) string {
	all := make([]string, 0, len(words))
	for _, w := range words {
		all = append(all, string(w))
	}
	if meant := nearest(word, all); meant != "" {
		return ": did you mean " + meant + "?"
	}
	return ""
}

// either writes words as a choice.
func either(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// clauseOf makes a sentence of help the end of another.
func clauseOf(sentence string) string {
	sentence = strings.TrimSuffix(sentence, ".")
	first, size := utf8.DecodeRuneInString(sentence)
	second, _ := utf8.DecodeRuneInString(sentence[size:])
	if unicode.IsUpper(second) {
		return ": " + sentence // a name, such as SPIFFE
	}
	return ": " + string(unicode.ToLower(first)) + sentence[size:]
}

func helpOfFlag(flags []*kingpin.FlagModel, name string) string {
	i := slices.IndexFunc(flags, func(f *kingpin.FlagModel) bool { return "--"+f.Name == name })
	if i < 0 {
		return ""
	}
	return clauseOf(flags[i].Help)
}

func helpOfArgument(parsed *kingpin.ParseContext, name string) string {
	args := parsed.SelectedCommand.Model().Args
	i := slices.IndexFunc(args, func(a *kingpin.ArgModel) bool { return a.Name == name })
	if i < 0 {
		return ""
	}
	return clauseOf(args[i].Help)
}

// flagsOf returns the flags of the program and of the commands that were recognized.
func flagsOf(app *kingpin.Application, parsed *kingpin.ParseContext) []*kingpin.FlagModel {
	flags := slices.Clone(app.Model().Flags)
	for _, e := range parsed.Elements {
		if c, ok := e.Clause.(*kingpin.CmdClause); ok {
			flags = append(flags, c.Model().Flags...)
		}
	}
	return flags
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
