package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/alecthomas/kingpin/v2"
)

// Verbs maps the full name of a command to what it does. Kingpin only parses: if it ran verbs, a failed verb and a bad
// command line would be the same kind of error.
type Verbs map[string]func(context.Context) error

// Check adds a check of the command line, which runs before the verb of c. It returns nil, or an error with a line for
// each mistake, which begins with the flag. A check opens nothing and changes nothing. All checks of a verb run.
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

// checkOf precedes the name of a command in the key of its checks.
const checkOf = "check "

// Mistakes returns the mistakes that the checks of a verb find in its parsed command line, one a line.
func (v Verbs) Mistakes(verb string) error {
	check := v[checkOf+verb]
	if check == nil {
		return nil
	}
	return check(context.Background())
}

// A Program is one of the commands of this repository.
type Program struct {
	Name, Help string
	Groups     []Group // of the first screen of help; nil for one group of all commands
	Topics     []Topic // of "help TOPIC"
	Add        func(*kingpin.Application, Verbs)
}

// Run parses the arguments, runs the verb and returns the exit status. The verb's context ends with the first SIGINT or
// SIGTERM; the second one ends the process. Errors are reported on standard error.
func (p *Program) Run(args []string) int {
	app := kingpin.New(p.Name, p.Help)
	app.Version(Version())
	all := Verbs{}
	p.Add(app, all)
	if text := p.page(app.Model(), args); text != "" {
		_, err := os.Stdout.WriteString(text)
		return Report(os.Stderr, p.Name, err)
	}
	args = helpAsked(args)
	p.setUsage(app, args)
	args = joinDashes(app.Model(), args)
	verb, err := app.Parse(args)
	if err != nil {
		err = mistake(app, args, err)
	} else if err = emptyValue(app, args); err == nil {
		err = all.Mistakes(verb)
	}
	if err != nil {
		return Report(os.Stderr, p.Name, &UsageError{Mistakes: err, Help: helpFor(app, args)})
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // the second signal ends the process
	return Report(os.Stderr, p.Name, asService(ctx, p.Name, func(ctx context.Context) error {
		return interrupted(ctx, all[verb](ctx))
	}))
}

// CleansUp wraps a verb that removes things at its end, such as keys. Its context also ends with SIGHUP, unless the
// caller ignores that (nohup). Printing into a closed pipe is an error and does not end the process.
func CleansUp(verb func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		signal.Ignore(syscall.SIGPIPE)
		if signal.Ignored(syscall.SIGHUP) {
			return verb(ctx)
		}
		// SIGHUP stays caught after the first one: a terminal that closes often sends two, one through the shell.
		ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP)
		defer stop()
		return interrupted(ctx, verb(ctx))
	}
}

// interrupted replaces each line of err that only says that ctx was canceled by one "interrupted".
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() == nil || !errors.Is(err, context.Canceled) {
		return err
	}
	rest := []string{"interrupted"}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		if !strings.Contains(line, context.Cause(ctx).Error()) && !strings.Contains(line, context.Canceled.Error()) {
			rest = append(rest, line)
		}
	}
	return errors.New(strings.Join(rest, "\n"))
}
