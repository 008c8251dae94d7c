package cli

import (
	"context"
	"errors"
	"io/fs"
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

// Check has f look at the command line of c before its verb runs, and also where
// the form of that line is wrong: so all mistakes are said at once. f returns nil, or
// an error with a line for each mistake that begins with the flag that it is
// about; it opens nothing and changes nothing. A flag or an argument that was not
// given, or has a value that cannot be, is as if it were absent, and a list may have things twice: what f says
// of the former is not repeated. Of several, all are asked.
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
func (v Verbs) Mistakes(verb string) (all []error) {
	f := v[checkOf+verb]
	if f == nil {
		return nil
	}
	err := f(context.Background())
	if err == nil {
		return nil
	}
	for line := range strings.Lines(err.Error()) {
		all = append(all, errors.New(strings.TrimRight(line, "\n")))
	}
	return all
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
	addFish(app)

	all := Verbs{}
	add(app, all)
	args = joinNegatives(app.Model(), args)
	verb, err := app.Parse(args)
	if write := (*fs.PathError)(nil); errors.As(err, &write) && write.Op == "write" {
		return Report(os.Stderr, program, write) // of what a flag such as --help-man prints, and no mistake
	}
	if err != nil {
		return Report(os.Stderr, program, Usage(helpFor(app, args), mistakes(app, all, args, err)...))
	}
	if wrong := empty(app, args, all.Mistakes(verb)); wrong != nil {
		return Report(os.Stderr, program, Usage(helpFor(app, args), wrong...))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // the next one finds nobody who listens
	return Report(os.Stderr, program, interrupted(ctx, all[verb](ctx)))
}

// CleansUp is for a verb that has things to take away at its end, keys among them: its
// context then also ends when the terminal goes, unless the caller has that ignored
// (nohup), and what it prints into a pipe that nobody reads is an error in place of
// the end of the process.
func CleansUp(verb func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		IgnoreBrokenPipe()
		if signal.Ignored(syscall.SIGHUP) {
			return verb(ctx)
		}
		// Not for the first signal alone: a terminal that goes often sends two, of which one is the shell's.
		ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP)
		defer stop()
		return interrupted(ctx, verb(ctx))
	}
}

// Serves is for a verb that goes on until it is told to stop. It is CleansUp, but to end because
// of a SIGHUP is an error then: who sends one to have files read again, as one does to other
// daemons, did not ask for an end, and a service manager takes status 0 for one and leaves it
// at that.
func Serves(verb func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		hung := false
		err := CleansUp(func(inner context.Context) error {
			err := verb(inner)
			hung = inner.Err() != nil && ctx.Err() == nil
			return err
		})(ctx)
		if err == nil && hung {
			return errors.New("ended by SIGHUP, to be started again: by SIGTERM it ends for good")
		}
		return err
	}
}

// IgnoreBrokenPipe is for a verb that goes on when nobody reads its log any more: what it
// writes there is an error in place of the end of the process.
func IgnoreBrokenPipe() { signal.Ignore(syscall.SIGPIPE) }

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
	rest := []error{errors.New("interrupted")}
	for line := range strings.Lines(err.Error()) {
		line = strings.TrimRight(line, "\n")
		if !strings.Contains(line, context.Cause(ctx).Error()) && !strings.Contains(line, context.Canceled.Error()) {
			rest = append(rest, errors.New(line))
		}
	}
	return errors.Join(rest...)
}
