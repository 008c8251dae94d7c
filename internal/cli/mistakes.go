package cli

import (
	"fmt"
	"slices"
	"strings"

	"muster/internal/nearest"

	"github.com/alecthomas/kingpin/v2"
)

// mistake adds to kingpin's error about a command line the flag or command that may be meant.
func mistake(app *kingpin.Application, args []string, refused error) error {
	parsed, _ := app.ParseContext(args) // its error, if any, is refused
	at := strings.IndexAny(refused.Error(), `'"`)
	if parsed == nil || at < 0 {
		return refused
	}
	quoted := refused.Error()[at:]
	word, _, _ := strings.Cut(quoted[1:], quoted[:1])
	switch {
	case strings.HasPrefix(refused.Error(), "must select") && parsed.SelectedCommand != nil:
		verbs := commandsIn(parsed.SelectedCommand.Model().CmdGroupModel)
		return fmt.Errorf("`%s %s` needs a command: %s", app.Name, word, strings.Join(verbs, ", "))
	case strings.HasPrefix(refused.Error(), "unknown"):
		if meant := nearestOf(word, flagsOf(app, parsed)); meant != "" {
			return fmt.Errorf("%w: did you mean %s?", refused, meant)
		}
	case strings.HasPrefix(refused.Error(), "expected command"):
		if meant := commandMeant(app, parsed.SelectedCommand, word); meant != "" {
			return fmt.Errorf("%w: did you mean `%s %s`?", refused, app.Name, meant)
		}
	}
	return refused
}

// synonyms maps verbs of other programs to verbs of muster, the likeliest first.
var synonyms = map[string][]string{
	"accept":   {"approve"},
	"block":    {"revoke"},
	"create":   {"add", "sign", "init"},
	"delete":   {"remove", "retire", "revoke"},
	"deny":     {"reject"},
	"describe": {"show", "explain"},
	"enroll":   {"server run"},
	"get":      {"show", "list"},
	"info":     {"show", "status"},
	"logs":     {"history", "events"},
	"ls":       {"list"},
	"new":      {"add", "sign", "init"},
	"ps":       {"list"},
	"rm":       {"remove", "retire", "revoke"},
	"serve":    {"run"},
	"setup":    {"init"},
	"start":    {"run"},
	"why":      {"explain"},
}

// elsewhere maps verbs that a noun does not have to commands of other nouns.
var elsewhere = map[string]string{
	"node add":     "allow add",
	"node create":  "allow add",
	"token add":    "jwt sign",
	"token create": "jwt sign",
	"token new":    "jwt sign",
	"token sign":   "jwt sign",
}

// commandMeant returns the command that an unknown word may mean, or "". below is the command before the word, or nil.
func commandMeant(app *kingpin.Application, below *kingpin.CmdClause, word string) string {
	group, above := app.Model().CmdGroupModel, ""
	if below != nil {
		group, above = below.Model().CmdGroupModel, below.FullCommand()+" "
	}
	if meant := elsewhere[above+word]; meant != "" {
		return meant
	}
	names := commandsIn(group)
	nouns := []string{""}
	if below == nil { // also verbs whose noun is missing
		each(group, func(c *kingpin.CmdModel) { names = append(names, c.FullCommand) })
		nouns = []string{"", "node ", "jwt ", "provisioner "}
	}
	for _, noun := range nouns {
		for _, verb := range append([]string{word}, synonyms[word]...) {
			if slices.Contains(names, noun+verb) {
				return above + noun + verb
			}
		}
	}
	if meant := nearestOf(word, commandsIn(group)); meant != "" {
		return above + meant
	}
	return ""
}

// emptyValue reports the first flag or argument with an empty value: an unset variable must not select all nodes.
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
			if slices.Contains(args, "-") { // kingpin makes it empty
				return fmt.Errorf("<%s> is -, which is no file here: write ./- for a file of that name",
					clause.Model().Name)
			}
			return fmt.Errorf("<%s> is empty: give it a value", clause.Model().Name)
		}
	}
	return nil
}

// nearestOf returns the first of the words that begins with word, else the nearest one, else "".
func nearestOf(word string, words []string) string {
	begins := func(w string) bool { return word != "" && strings.HasPrefix(w, word) }
	if i := slices.IndexFunc(words, begins); i >= 0 {
		return words[i]
	}
	return nearest.Word(word, words, 2)
}

// flagsOf returns the visible flags of the program and of the recognized commands.
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

// joinDashes writes "--uses -1" as "--uses=-1", since Kingpin takes a value that begins with a dash for a flag.
func joinDashes(app *kingpin.ApplicationModel, args []string) (joined []string) {
	takes := make(map[string]bool)
	each(app.CmdGroupModel, func(c *kingpin.CmdModel) {
		for _, f := range c.Flags {
			takes["--"+f.Name] = takes["--"+f.Name] || !f.IsBoolFlag()
		}
	})
	for i := 0; i < len(args); i++ {
		switch {
		case args[i] == "--": // the rest are arguments
			return append(joined, args[i:]...)
		case i+1 < len(args) && takes[args[i]] &&
			strings.HasPrefix(args[i+1], "-") && !strings.HasPrefix(args[i+1], "--"):
			joined = append(joined, args[i]+"="+args[i+1])
			i++
		default:
			joined = append(joined, args[i])
		}
	}
	return joined
}
