package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
	"muster/provisioner"
	"muster/provisioner/httpapi"
)

// attemptsVerb is "muster attempts".
type attemptsVerb struct {
	operator
	top int
}

const attemptsHelp = `Counts what was refused, by the address that it came from and by the token that was
presented, the most first, with the codes of the refusals: rogues, and machines that
cannot get in and keep trying. A token is named only if its signature was good. Who
waits for a person or a policy, or met trouble of our own, is not counted.

The provisioner that is asked counts its own, since it started. It keeps the 1,000
addresses and tokens with the most; "up to N are others'" says how far a count may be
too high. What each attempt was, and which name it used, 'muster events' says.

Exits with 0 if it could be asked, also if there is nobody to list, 1 if not, 2 if the
command line makes no sense.

  muster attempts
  muster attempts --top 5 --json
  muster events --type attempt --since 1d`

// addAttempts adds "muster attempts".
func addAttempts(app *kingpin.Application, all verbs) {
	v := &attemptsVerb{}
	c := app.Command("attempts", "Show who fails most: addresses and tokens, with how often and why.").HelpLong(attemptsHelp)
	cli.Int(c.Flag("top", "List so many addresses, and so many tokens. Default: 20.").Default("20").PlaceHolder("N"), &v.top)
	v.add(c, all)
	all.Check(c, func() error {
		if v.top < 1 {
			return fmt.Errorf("--top is %d, want 1 or more", v.top)
		}
		return nil
	})
	all[c.FullCommand()] = v.run
}

func (v *attemptsVerb) run(ctx context.Context) error {
	var a httpapi.Attempts
	if err := v.ask(ctx, http.MethodGet, fmt.Sprintf("/v1/attempts?top=%d", v.top), nil, &a); err != nil {
		return err
	}
	return v.print(&a, func() error {
		if len(a.Sources) == 0 {
			v.say("no attempt has failed here since this provisioner started")
			return nil
		}
		return writeAttempts(os.Stdout, &a)
	})
}

// writeAttempts prints a table by address, and one by token if there are any.
func writeAttempts(w io.Writer, a *httpapi.Attempts) error {
	var sources, tokens cli.Table
	sources.Add("ADDRESS", "ATTEMPTS", "CODES", "FIRST", "LAST")
	for i := range a.Sources {
		sources.Add(failed(a.Sources[i].Source, &a.Sources[i])...)
	}
	if _, err := sources.WriteTo(w); err != nil || len(a.Tokens) == 0 {
		return err
	}
	tokens.Add("TOKEN ID", "ATTEMPTS", "CODES", "FIRST", "LAST")
	for i := range a.Tokens {
		tokens.Add(failed(string(a.Tokens[i].Token), &a.Tokens[i])...)
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	_, err := tokens.WriteTo(w)
	return err
}

// failed is a row of a table of attempts.
func failed(who string, f *provisioner.FailedAttempts) []string {
	count := fmt.Sprint(f.Count)
	if f.Over > 0 {
		count += fmt.Sprintf(", up to %d are others'", f.Over)
	}
	return []string{or(who, "-"), count, tallied(f.Codes), instant(f.First), instant(f.Last)}
}
