// Package verb has what the verbs of muster have in common: the flags that say which provisioner is
// asked and how its answer is shown, and the two shapes that most verbs have. A [Query] asks and shows,
// an [Order] changes something and says so.
package verb

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
)

// Program is the name in front of everything on standard error.
const Program = "muster"

// Say writes a line to standard error.
func Say(format string, args ...any) { cli.Say(os.Stderr, Program, format, args...) }

// Output is the form of a verb's answer, and what is said beside it.
type Output struct {
	cli.Output
	after []string // see After
}

// Say tells a person about the answer.
func (o *Output) Say(format string, args ...any) {
	if o.ForPeople() {
		Say(format, args...)
	}
}

// After is Say behind the answer.
func (o *Output) After(format string, args ...any) {
	o.after = append(o.after, fmt.Sprintf(format, args...))
}

// sayAfter says what was given to After.
func (o *Output) sayAfter() {
	for _, line := range o.after {
		o.Say("%s", line)
	}
}

// Show prints one answer: as JSON, or the text that it is for people, nil for none.
func Show[T any](o *Output, answer T, text func(T) io.WriterTo) error {
	if o.JSON() {
		return cli.WriteJSON(os.Stdout, answer)
	}
	if shown := text(answer); shown != nil {
		if _, err := shown.WriteTo(os.Stdout); err != nil {
			return err
		}
	}
	o.sayAfter()
	return nil
}

// ShowDone is [Show] for a verb that has changed something.
func ShowDone[T any](o *Output, answer T, text func(T) io.WriterTo) error {
	return Unprinted("it is done", Show(o, answer, text))
}

// Unprinted says that only the answer of a verb could not be written, if err is not nil: what was done stays done.
func Unprinted(done string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s, but the answer could not be written: %w", done, err)
}

// Query adds a verb that asks the provisioner and shows the answer.
func Query[T any](
	c *kingpin.CmdClause, all cli.Verbs,
	ask func(context.Context, *Operator) (T, error), show func(*Operator, T) io.WriterTo,
) {
	o := &Operator{}
	o.AddFlags(c)
	all.Check(c, o.CheckURL)
	all[c.FullCommand()] = func(ctx context.Context) error {
		answer, err := ask(ctx, o)
		if err != nil {
			return err
		}
		return Show(&o.Output, answer, func(answer T) io.WriterTo { return show(o, answer) })
	}
}

// Rows are a list that is shown in any form.
type Rows[R any] struct {
	Rows    []R
	Empty   string // said if there are no rows
	Columns []cli.Column[R]
}

// Shown is [Rows] of any kind.
type Shown interface {
	show(o *Output, answer any) error
}

// show implements [Shown].
func (l *Rows[R]) show(o *Output, answer any) error {
	if len(l.Rows) == 0 && o.ForPeople() {
		o.Say("%s", l.Empty)
		return nil
	}
	if err := cli.WriteList(os.Stdout, &o.Output, answer, l.Rows, l.Columns); err != nil {
		return err
	}
	o.sayAfter()
	return nil
}

// List adds a verb that asks the provisioner and shows a list of the answer. In JSON it shows the whole answer.
func List[T any](
	c *kingpin.CmdClause, all cli.Verbs,
	ask func(context.Context, *Operator) (T, error), rows func(*Operator, T) Shown,
) {
	o := &Operator{}
	o.Forms = cli.ListForms()
	o.AddFlags(c)
	all.Check(c, o.CheckURL)
	all[c.FullCommand()] = func(ctx context.Context) error {
		answer, err := ask(ctx, o)
		if err != nil {
			return err
		}
		return rows(o, answer).show(&o.Output, answer)
	}
}

// Path returns a function that asks the provisioner for what is at path.
func Path[T any](path string) func(context.Context, *Operator) (T, error) {
	return func(ctx context.Context, o *Operator) (T, error) { return Get[T](ctx, o, path) }
}

// Order adds a verb that has the provisioner change something, and says what it did.
func Order[T any](
	c *kingpin.CmdClause, all cli.Verbs,
	order func(context.Context, *Operator) (T, error), show func(*Operator, T) io.WriterTo,
) {
	o := &Operator{}
	o.AddChangeFlags(c, all)
	all[c.FullCommand()] = func(ctx context.Context) error {
		answer, err := order(ctx, o)
		if err != nil {
			return err
		}
		return ShowDone(&o.Output, answer, func(answer T) io.WriterTo { return show(o, answer) })
	}
}

// Get asks the provisioner for what is at path.
func Get[T any](ctx context.Context, o *Operator, path string) (answer T, err error) {
	err = o.do(ctx, http.MethodGet, path, nil, &answer)
	return answer, err
}

// Post sends the provisioner an order, nil for none with a body, and returns its answer.
func Post[T any](ctx context.Context, o *Operator, path string, order any) (answer T, err error) {
	err = o.do(ctx, http.MethodPost, path, order, &answer)
	return answer, err
}

// Send is [Post] of an order that is answered with nothing.
func Send(ctx context.Context, o *Operator, path string, order any) error {
	return o.do(ctx, http.MethodPost, path, order, nil)
}
