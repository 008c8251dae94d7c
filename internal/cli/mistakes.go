package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/alecthomas/kingpin/v2"
)

// mistakes lists all that is wrong with a command line, where kingpin names the
// first and seldom says of which flag it speaks. refused is what that has said.
func mistakes(app *kingpin.Application, verbs Verbs, args []string, refused error) []error {
	var all []error
	parsed, err := app.ParseContext(args)
	for {
		flag, at := unknownFlag(args, err)
		if flag == "" || parsed == nil {
			break
		}
		all = append(all, noFlag(app, parsed, flag))
		args = slices.Delete(slices.Clone(args), at, at+1)
		parsed, err = app.ParseContext(args)
		if err != nil && at < len(args) && err.Error() == "unexpected "+args[at] { // its value
			args = slices.Delete(args, at, at+1)
			parsed, err = app.ParseContext(args)
		}
	}
	if parsed == nil {
		return append(all, refused)
	}
	// A flag that nobody knows may be one that is needed, and what comes after it
	// its value, which is not what it seems here.
	guessed := len(all) > 0
	if err != nil && !guessed {
		all = append(all, shape(app, parsed, err))
	}
	all = append(all, values(parsed)...)
	if err == nil && !guessed {
		all = append(all, missing(app, parsed)...)
		if c := parsed.SelectedCommand; c != nil {
			all = append(all, further(all, verbs.Mistakes(c.FullCommand()))...)
		}
	}
	if len(all) == 0 {
		return []error{refused}
	}
	return all
}

// further returns those of a verb's own mistakes that come on top of the ones that
// are known: none about a flag that has been named, nor about what was not given.
func further(known, own []error) (all []error) {
	for _, err := range own {
		said := func(k error) bool {
			flag, _, _ := strings.Cut(k.Error(), " ")
			flag = strings.TrimSuffix(flag, ":")
			return strings.HasPrefix(flag, "--") && slices.ContainsFunc(strings.Fields(err.Error()), func(w string) bool { return strings.Trim(w, ":,") == flag })
		}
		same := func(e error) bool { return e.Error() == err.Error() } // a list may have it twice
		absent := strings.Contains(err.Error(), `""`) || strings.HasSuffix(err.Error(), ": empty")
		if !absent && !slices.ContainsFunc(known, said) && !slices.ContainsFunc(all, same) {
			all = append(all, err)
		}
	}
	return all
}

// unknownFlag returns the flag that kingpin does not know, as it is written, and
// which argument it is; "" if it does not complain of one.
func unknownFlag(args []string, err error) (flag string, at int) {
	if err == nil {
		return "", 0
	}
	_, quoted, ok := strings.Cut(err.Error(), " flag '")
	flag = strings.TrimSuffix(quoted, "'")
	if !ok || !strings.HasPrefix(err.Error(), "unknown ") {
		return "", 0
	}
	at = slices.IndexFunc(args, func(a string) bool { return a == flag || strings.HasPrefix(a, flag+"=") })
	if at < 0 {
		return "", 0 // one letter of several in one word
	}
	return flag, at
}

// noFlag says that there is no such flag, and which one may be meant.
func noFlag(app *kingpin.Application, parsed *kingpin.ParseContext, flag string) error {
	name := strings.TrimPrefix(strings.TrimLeft(flag, "-"), "no-")
	known := flagsOf(app, parsed)
	var names []string
	for _, f := range known {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	}
	if meant := meantBy(name, names); len(meant) > 0 {
		return fmt.Errorf("no flag %s: did you mean --%s?", flag, strings.Join(meant, " or --"))
	}
	elsewhere := false
	each(app.Model().CmdGroupModel, func(c *kingpin.CmdModel) {
		elsewhere = elsewhere || slices.ContainsFunc(c.Flags, func(f *kingpin.FlagModel) bool { return f.Name == name })
	})
	if parsed.SelectedCommand == nil && elsewhere {
		return fmt.Errorf("no flag %s in front of a command: write it behind that", flag)
	}
	return fmt.Errorf("no flag %s", flag)
}

// shape says what is wrong with how the arguments follow one another.
func shape(app *kingpin.Application, parsed *kingpin.ParseContext, err error) error {
	if flag, ok := strings.CutPrefix(err.Error(), "expected argument for flag '"); ok {
		return fmt.Errorf("%s wants a value", strings.TrimSuffix(flag, "'"))
	}
	if what, ok := strings.CutPrefix(err.Error(), "unexpected "); ok {
		return fmt.Errorf("unexpected argument %q", what)
	}
	quoted, ok := strings.CutPrefix(err.Error(), "expected command but got ")
	word, unquoted := strconv.Unquote(quoted)
	if !ok || unquoted != nil {
		return err
	}
	group, above := app.Model().CmdGroupModel, ""
	if c := parsed.SelectedCommand; c != nil {
		group, above = c.Model().CmdGroupModel, c.FullCommand()+" "
	}
	if meant := meantBy(word, commandsIn(group)); len(meant) > 0 {
		return fmt.Errorf("no command %q: did you mean `%s %s%s`?", above+word, app.Name, above, strings.Join(meant, "` or `"+app.Name+" "+above))
	}
	if elsewhere := commandsCalled(app.Model().CmdGroupModel, word); len(elsewhere) > 0 {
		return fmt.Errorf("no command %q: there is `%s %s`", above+word, app.Name, strings.Join(elsewhere, "`, `"+app.Name+" "))
	}
	return fmt.Errorf("no command %q", above+word)
}

// An element is a flag or an argument on the command line.
type element struct {
	name  string // "--flag" or "<argument>"
	help  string
	value kingpin.Value
	text  *string // nil for a flag without a value
	again bool    // a flag that was given before, and may be given once
}

// elements returns the flags and arguments that are given.
func elements(parsed *kingpin.ParseContext) (all []element) {
	given := make(map[string]int)
	for _, e := range parsed.Elements {
		switch clause := e.Clause.(type) {
		case *kingpin.FlagClause:
			m := clause.Model()
			given[m.Name]++
			all = append(all, element{"--" + m.Name, m.Help, m.Value, e.Value, given[m.Name] > 1 && !cumulative(m.Value)})
		case *kingpin.ArgClause:
			m := clause.Model()
			all = append(all, element{"<" + m.Name + ">", m.Help, m.Value, e.Value, false})
		}
	}
	return all
}

// values says which values their flags and arguments do not take.
func values(parsed *kingpin.ParseContext) (all []error) {
	repeated := make(map[string]bool)
	for _, e := range elements(parsed) {
		switch {
		case e.text == nil:
		case e.again && !repeated[e.name]:
			repeated[e.name] = true
			all = append(all, fmt.Errorf("%s is given more than once", e.name))
		case !e.again:
			// To set it again does no harm: nothing will run, and that a list has it twice is no mistake.
			if err := e.value.Set(*e.text); err != nil {
				all = append(all, wrongValue(e.name, *e.text, err))
			}
		}
	}
	return all
}

// empty adds flags that were given without a value to what is wrong already, but for
// those of which that speaks: an unset variable of a shell must not pass for a flag
// that was left out, which may mean all machines in place of some.
func empty(app *kingpin.Application, args []string, wrong []error) []error {
	parsed, err := app.ParseContext(args)
	if err != nil {
		return wrong
	}
	var arguments []error
	for _, e := range elements(parsed) {
		switch {
		case e.text == nil || *e.text != "":
		case e.name[0] == '<':
			arguments = append(arguments, fmt.Errorf("%s is empty: %s", e.name, clauseOf(e.help)))
		case !slices.ContainsFunc(wrong, func(w error) bool { return strings.Contains(w.Error(), e.name) }):
			wrong = append(wrong, fmt.Errorf("%s is empty: give it a value, or leave it out", e.name))
		}
	}
	if len(wrong) > 0 {
		return wrong // it may be about the empty argument
	}
	return arguments
}

// wrongValue says in our words what kingpin has against a value.
func wrongValue(name, value string, err error) error {
	if arg := (*argError)(nil); strings.HasPrefix(err.Error(), name) || errors.As(err, &arg) {
		return err // it is ours, see [Int] and [Arg]
	}
	if options, ok := strings.CutPrefix(err.Error(), "enum value must be one of "); ok {
		options, _, _ = strings.Cut(options, ", got '")
		return fmt.Errorf("%s is %q, want %s", name, value, either(strings.Split(options, ",")))
	}
	return fmt.Errorf("%s: %w", name, err)
}

// missing says what is required and not there.
func missing(app *kingpin.Application, parsed *kingpin.ParseContext) (all []error) {
	c := parsed.SelectedCommand
	if c == nil {
		return nil
	}
	if group := c.Model().CmdGroupModel; len(group.Commands) > 0 {
		return []error{fmt.Errorf("`%s %s` is followed by a command: %s", app.Name, c.FullCommand(), either(commandsIn(group)))}
	}
	given := make(map[string]bool)
	for _, e := range elements(parsed) {
		given[e.name] = true
	}
	for _, f := range flagsOf(app, parsed) {
		if f.Required && !given["--"+f.Name] {
			all = append(all, fmt.Errorf("--%s is missing: %s", f.Name, clauseOf(f.Help)))
		}
	}
	for _, a := range c.Model().Args {
		if a.Required && !given["<"+a.Name+">"] {
			all = append(all, fmt.Errorf("<%s> is missing: %s", a.Name, clauseOf(a.Help)))
		}
	}
	return all
}

// cumulative reports whether a flag may be repeated.
func cumulative(v kingpin.Value) bool {
	c, ok := v.(interface{ IsCumulative() bool })
	return ok && c.IsCumulative()
}
