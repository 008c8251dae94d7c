package events

import (
	"context"
	"fmt"
	"io"
	"math"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/provisioner/events"
	"muster/provisioner/httpapi"
)

const attemptsHelp = `Counts what was refused, by the address that it came from and by the token that was
presented, the most first, with the codes of the refusals: rogues, and machines that
cannot get in and keep trying. A token is named only if its signature was good.
Machines that wait for a person or a policy, or met faults of our own, are not counted.

The provisioner that is asked counts its own, since it started. It keeps the 1,000
addresses and tokens with the most; "up to N are others'" says how far a count may be
too high. What each attempt was, and which name it used, 'muster events' says.

Exits with 0 if it could be asked, also if the list is empty, 1 if not, 2 if the
command line makes no sense.

  muster attempts
  muster attempts --top 5 --json
  muster events --type attempt --since 1d`

func addAttempts(app *kingpin.Application, all cli.Verbs) {
	var top int
	c := app.Command("attempts", "Show addresses and tokens with the most failed attempts, and why.").HelpLong(attemptsHelp)
	cli.IntIn(c.Flag("top", "List so many addresses, and so many tokens. Default: 20.").Default("20").PlaceHolder("N"), &top, 1, math.MaxInt)
	verb.Query(c, all, func(ctx context.Context, o *verb.Operator) (*httpapi.Attempts, error) {
		return verb.Get[*httpapi.Attempts](ctx, o, fmt.Sprintf("/v1/attempts?top=%d", top))
	}, showAttempts)
}

// showAttempts makes a table by address, and one by token if there are any.
func showAttempts(o *verb.Operator, a *httpapi.Attempts) io.WriterTo {
	if len(a.Sources) == 0 {
		o.Say("no attempt has failed here since this provisioner started")
		return nil
	}
	sources := cli.NewTable("ADDRESS", "ATTEMPTS", "CODES", "FIRST", "LAST")
	for i := range a.Sources {
		addFailed(sources, a.Sources[i].Source, &a.Sources[i])
	}
	if len(a.Tokens) == 0 {
		return sources
	}
	tokens := cli.NewTable("TOKEN ID", "ATTEMPTS", "CODES", "FIRST", "LAST")
	for i := range a.Tokens {
		addFailed(tokens, string(a.Tokens[i].Token), &a.Tokens[i])
	}
	return cli.Parts{sources, tokens}
}

func addFailed(t *cli.Table, from string, f *events.FailedAttempts) {
	count := fmt.Sprint(f.Count)
	if f.Over > 0 {
		count += fmt.Sprintf(", up to %d are others'", f.Over)
	}
	t.Add(verb.OrDash(from), count, verb.Tallied(f.Codes), verb.Instant(f.First), verb.Instant(f.Last))
}
