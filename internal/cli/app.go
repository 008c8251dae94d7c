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
type Verbs = map[string]func(context.Context) error

// Run parses the arguments, runs the verb that add has put into its map, and
// returns the exit status. The verb's context ends with SIGINT and SIGTERM.
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
	if err != nil {
		return Report(os.Stderr, program, Usage(helpFor(app, args), mistakes(app, args, err)...))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return Report(os.Stderr, program, interrupted(ctx, all[verb](ctx)))
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
	rest := []error{errors.New("interrupted")}
	for line := range strings.Lines(err.Error()) {
		line = strings.TrimRight(line, "\n")
		if !strings.Contains(line, context.Cause(ctx).Error()) && !strings.Contains(line, context.Canceled.Error()) {
			rest = append(rest, errors.New(line))
		}
	}
	return errors.Join(rest...)
}
