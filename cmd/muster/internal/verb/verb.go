// Package verb has what the verbs of muster have in common: the flags that say which provisioner is
// asked and how its answer is shown, and the two shapes that most verbs have. A [Query] asks and shows,
// an [Order] changes something and says so.
package verb

import (
	"context"
	"encoding/json"
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

// Output is how a verb shows its answer: for people, or as JSON for programs.
type Output struct {
	json  bool
	after []string // see After
}

// AddJSON adds the flag.
func (o *Output) AddJSON(c *kingpin.CmdClause) {
	cli.Flag(c, "json").BoolVar(&o.json)
}

// JSON reports whether programs are to read the answer.
func (o *Output) JSON() bool { return o.json }

// Say tells a person about the answer; programs have the JSON.
func (o *Output) Say(format string, args ...any) {
	if !o.json {
		Say(format, args...)
	}
}

// After is Say of what comes behind the answer.
func (o *Output) After(format string, args ...any) {
	o.after = append(o.after, fmt.Sprintf(format, args...))
}

// Show prints an answer: as JSON, or what text makes of it, nil for nothing.
func Show[T any](o *Output, answer T, text func(T) io.WriterTo) error {
	if o.json {
		return WriteJSON(os.Stdout, answer)
	}
	if shown := text(answer); shown != nil {
		if _, err := shown.WriteTo(os.Stdout); err != nil {
			return err
		}
	}
	for _, line := range o.after {
		Say("%s", line)
	}
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
	return fmt.Errorf("%s, only the answer could not be written: %w", done, err)
}

// WriteJSON writes value as JSON that is indented.
func WriteJSON(w io.Writer, value any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(value)
}

// Query adds a verb that asks the provisioner and shows the answer.
func Query[T any](c *kingpin.CmdClause, all cli.Verbs, ask func(context.Context, *Operator) (T, error), show func(*Operator, T) io.WriterTo) {
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

// List adds a verb that shows what the provisioner has at path.
func List[T any](c *kingpin.CmdClause, all cli.Verbs, path string, show func(*Operator, T) io.WriterTo) {
	Query(c, all, func(ctx context.Context, o *Operator) (T, error) { return Get[T](ctx, o, path) }, show)
}

// Order adds a verb that has the provisioner change something, and says what it did.
func Order[T any](c *kingpin.CmdClause, all cli.Verbs, order func(context.Context, *Operator) (T, error), show func(*Operator, T) io.WriterTo) {
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
