package cli

import (
	"context"
	"errors"
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
type Verbs map[string]func(context.Context) error

// Check has f look at the command line of c before its verb runs. f returns nil, or an error with a line for each
// mistake that begins with the flag that it is about; it opens nothing and changes nothing. Of several, all are asked.
func (v Verbs) Check(c *kingpin.CmdClause, f func() error) {
	name := checkOf + c.FullCommand()
	before := v[name]
	v[name] = func(ctx context.Context) error {
		if before == nil {
			return f()
		}
		return errors.Join(before(ctx), f())
	}
}

// checkOf is in front of a command's name where its checks are. No command has a
// name that begins so.
const checkOf = "check "

// Mistakes returns what a verb has against its command line, which was parsed, a line each.
func (v Verbs) Mistakes(verb string) error {
	check := v[checkOf+verb]
	if check == nil {
		return nil
	}
	return check(context.Background())
}

// Run parses the arguments, runs the verb that add has put into its map, and
// returns the exit status. The verb's context ends with the first SIGINT or SIGTERM, and the
// process with the second: whatever it does may end after any step.
// What goes wrong is reported on standard error.
func Run(program, help string, args []string, add func(*kingpin.Application, Verbs)) int {
	app := kingpin.New(program, help)
	app.Version(Version())
	args = helpAsked(args)
	setUsage(app, args)

	all := Verbs{}
	add(app, all)
	args = joinDashes(app.Model(), args)
	verb, err := app.Parse(args)
	if err != nil {
		err = mistake(app, args, err)
	} else if err = emptyValue(app, args); err == nil {
		err = all.Mistakes(verb)
	}
	if err != nil {
		return Report(os.Stderr, program, &UsageError{Mistakes: err, Help: helpFor(app, args)})
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // the second signal ends the process
	return Report(os.Stderr, program, interrupted(ctx, all[verb](ctx)))
}

// CleansUp is for a verb that has things to remove at its end, keys among them: its context also ends when the terminal
// goes, unless the caller has that ignored (nohup). To print into a closed pipe is an error in place of the end of the
// process.
func CleansUp(verb func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		signal.Ignore(syscall.SIGPIPE)
		if signal.Ignored(syscall.SIGHUP) {
			return verb(ctx)
		}
		// Not for the first signal alone: a terminal that goes often sends two, of which one is the shell's.
		ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP)
		defer stop()
		return interrupted(ctx, verb(ctx))
	}
}

// helpAsked writes "help COMMAND" as "COMMAND --help", so that a command that is
// not there is a mistake like any other.
func helpAsked(args []string) []string {
	if len(args) == 0 || args[0] != "help" {
		return args
	}
	return append(slices.Clone(args[1:]), "--help")
}

// interrupted returns what is left to say of err, the result of a verb that
// ran under ctx: where it only says that ctx was canceled, however it is
// wrapped, it becomes "interrupted". Other errors joined to it stay, and so
// does every error while ctx is not done.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() == nil || !errors.Is(err, context.Canceled) {
		return err
	}
	rest := []string{"interrupted"}
	for said := range strings.SplitSeq(err.Error(), "\n") {
		if !strings.Contains(said, context.Cause(ctx).Error()) && !strings.Contains(said, context.Canceled.Error()) {
			rest = append(rest, said)
		}
	}
	return errors.New(strings.Join(rest, "\n"))
}
