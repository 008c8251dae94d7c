// Package verb is shared by the verbs of muster: flags that choose the provisioner and the output, and two kinds of
// verbs. A [Query] shows an answer. An [Order] makes a change and reports it.
package verb

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
)

// Program precedes each line on standard error.
const Program = "muster"

// Say writes a line to standard error.
func Say(format string, args ...any) { cli.Say(os.Stderr, Program, format, args...) }

// Output is the form of a verb's answer, and the remarks about it.
type Output struct {
	cli.Output
	after []string // see After
}

// Say writes a remark to standard error, unless the output is for programs.
func (o *Output) Say(format string, args ...any) {
	if o.ForPeople() {
		Say(format, args...)
	}
}

// After is like Say, but the line appears after the answer.
func (o *Output) After(format string, args ...any) {
	o.after = append(o.after, fmt.Sprintf(format, args...))
}

func (o *Output) sayAfter() {
	for _, line := range o.after {
		o.Say("%s", line)
	}
}

// Show prints one answer, as JSON or as text; a nil text prints nothing.
func Show[T any](o *Output, answer T, text func(T) fmt.Stringer) error {
	if o.JSON() {
		return cli.WriteJSON(os.Stdout, answer)
	}
	if shown := text(answer); shown != nil {
		if _, err := fmt.Print(shown); err != nil {
			return err
		}
	}
	o.sayAfter()
	return nil
}

// ShowDone is [Show] for a verb that has changed something.
func ShowDone[T any](o *Output, answer T, text func(T) fmt.Stringer) error {
	return Unprinted("it is done", Show(o, answer, text))
}

// Unprinted says in err that the work is done and only its answer could not be written. Nil stays nil.
func Unprinted(done string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s, but the answer could not be written: %w", done, err)
}

// Query adds a verb that asks the provisioner and shows the answer.
func Query[T any](
	c *kingpin.CmdClause, all cli.Verbs,
	ask func(context.Context, *Operator) (T, error), show func(*Operator, T) fmt.Stringer,
) {
	o := &Operator{}
	o.AddFlags(c)
	all.Check(c, o.CheckURL)
	add(c, all, o, ask, func(answer T) error {
		return Show(&o.Output, answer, func(answer T) fmt.Stringer { return show(o, answer) })
	})
}

// add makes the verb show the answer, unless there is an error.
func add[T any](
	c *kingpin.CmdClause, all cli.Verbs, o *Operator,
	ask func(context.Context, *Operator) (T, error), show func(T) error,
) {
	all[c.FullCommand()] = func(ctx context.Context) error {
		answer, err := ask(ctx, o)
		if err != nil {
			return err
		}
		return show(answer)
	}
}

// Rows is a list that can be printed in every form.
type Rows[R any] struct {
	Rows    []R
	Noun    string // the list's member in JSON; empty: JSON is the whole answer
	Empty   string // printed to standard error if there are no rows
	Columns []cli.Column[R]
}

// Shown is [Rows] of any type.
type Shown interface {
	show(o *Output, answer any) error
}

func (l *Rows[R]) show(o *Output, answer any) error {
	if len(l.Rows) == 0 && o.ForPeople() {
		o.Say("%s", l.Empty)
		return nil
	}
	if l.Noun != "" {
		answer = map[string][]R{l.Noun: append([]R{}, l.Rows...)}
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
	add(c, all, o, ask, func(answer T) error { return rows(o, answer).show(&o.Output, answer) })
}

// ListOf adds a verb that shows the list at a route of the provisioner's API. empty is what it says of no rows.
func ListOf[R any](c *kingpin.CmdClause, all cli.Verbs, route, empty string, columns []cli.Column[R]) {
	List(c, all, Listed[R](route), func(_ *Operator, rows []R) Shown {
		return &Rows[R]{Rows: rows, Noun: path.Base(route), Empty: empty, Columns: columns}
	})
}

// Listed returns a function that gets a list from the provisioner's API: the member that is named as the route ends.
func Listed[R any](route string) func(context.Context, *Operator) ([]R, error) {
	return func(ctx context.Context, o *Operator) ([]R, error) {
		answer, err := Get[map[string][]R](ctx, o, route)
		return answer[path.Base(route)], err
	}
}

// Order adds a verb that requests a change and reports the result.
func Order[T any](
	c *kingpin.CmdClause, all cli.Verbs,
	order func(context.Context, *Operator) (T, error), show func(*Operator, T) fmt.Stringer,
) {
	o := &Operator{}
	o.AddChangeFlags(c, all)
	add(c, all, o, order, func(answer T) error {
		return ShowDone(&o.Output, answer, func(answer T) fmt.Stringer { return show(o, answer) })
	})
}

// Get gets path from the provisioner's API.
func Get[T any](ctx context.Context, o *Operator, path string) (answer T, err error) {
	err = o.do(ctx, http.MethodGet, path, nil, &answer)
	return answer, err
}

// Post sends an order to the provisioner and returns the answer. A nil order has no body.
func Post[T any](ctx context.Context, o *Operator, path string, order any) (answer T, err error) {
	err = o.do(ctx, http.MethodPost, path, order, &answer)
	return answer, err
}

// Send is [Post] for an order whose answer has no body.
func Send(ctx context.Context, o *Operator, path string, order any) error {
	return o.do(ctx, http.MethodPost, path, order, nil)
}
