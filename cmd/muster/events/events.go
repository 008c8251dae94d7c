// Package events has "muster events".
package events

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/internal/span"
	"muster/internal/wire"
	"muster/provisioner/events"
)

const help = `Prints what has happened in the fleet, the oldest first, a line for each event: when,
what, which node, and why. docs/reference/events.md has all types. With --json each line is
the whole event, a CloudEvent.

With --follow it goes on with what happens from then on, until it is interrupted.

  muster events --since 1d --type node.refused
  muster events --follow --node web1.example.net
  muster events --since 2026-03-01T02:00:00Z --code denied --json

Exits with 0 if that is done, 1 if it failed, or with --follow once it is interrupted, 2
if the command line makes no sense.`

// filter is what the flags of "muster events" say.
type filter struct {
	follow           bool
	since, typ, code string
	node             wire.Identity
}

// Add adds the verb.
func Add(app *kingpin.Application, all cli.Verbs) {
	f, o := &filter{}, &verb.Operator{}
	c := app.Command("events", "Show what happens in the fleet.").HelpLong(help)
	cli.Flag(c, "follow").Short('f').BoolVar(&f.follow)
	cli.Flag(c, "since").Default("1h").StringVar(&f.since)
	cli.Flag(c, "type").StringVar(&f.typ)
	cli.Parse(cli.Flag(c, "node").HintAction(verb.NodeNames), &f.node, wire.ParseIdentity)
	cli.Flag(c, "code").StringVar(&f.code)
	o.AddFlags(c)
	all.Check(c, o.CheckURL)
	all.Check(c, func() error { _, err := f.query(time.Now()); return err })
	all[c.FullCommand()] = func(ctx context.Context) error { return f.run(ctx, o) }
}

// query returns what is asked for, or all that is wrong with it.
func (f *filter) query(now time.Time) (events.Query, error) {
	q := events.Query{Type: f.typ, Code: wire.Code(f.code), Node: f.node, Once: !f.follow}
	var mistakes []error
	var err error
	if q.Since, err = span.ParsePast(f.since, now); q.Since.After(now.Add(span.Day)) { // clocks differ by less
		err = fmt.Errorf("%s is in the future: want a time in the past; --follow alone shows new events", f.since)
	}
	mistakes = append(mistakes, verb.Flag("since", err))
	if f.typ != "" && !strings.HasPrefix(f.typ, "io.") {
		q.Type = "io.muster." + f.typ
	}
	return q, errors.Join(mistakes...)
}

func (f *filter) run(ctx context.Context, o *verb.Operator) error {
	q, err := f.query(time.Now())
	if err != nil {
		return err
	}
	client, err := o.Client()
	if err != nil {
		return err
	}
	none := true
	err = client.Events(ctx, q, func(e *events.Stored, line []byte) error {
		none = false
		if o.JSON() {
			_, err := os.Stdout.Write(append(bytes.Clone(line), '\n'))
			return err
		}
		return write(os.Stdout, e)
	})
	if err == nil && f.follow && ctx.Err() == nil {
		return errors.New("the provisioner has ended the stream, as when it is stopped: run this again once it serves, or with --url at another")
	}
	if err == nil && none {
		o.Say("no such event since %s", verb.Instant(q.Since))
	}
	return err
}

// omitted are the members of events that a line leaves out.
var omitted = []string{"node", "identity", "digest", "attempt", "policy", "boot", "signer"}

// write writes an event as a line for a person: when, what, which node, and
// the members that say most, in the order of the table.
func write(w io.Writer, e *events.Stored) error {
	var data map[string]any
	d := json.NewDecoder(bytes.NewReader(e.Data))
	d.UseNumber()
	if err := d.Decode(&data); err != nil {
		return fmt.Errorf("event %s: %w", e.ID, err)
	}
	line := fmt.Sprintf("%s  %-18s  %s", verb.Instant(e.Time), strings.TrimPrefix(string(e.Type), "io.muster."), verb.OrDash(e.Subject))
	for _, m := range events.Members {
		value, ok := data[m.Name]
		if !ok || slices.Contains(omitted, m.Name) {
			continue
		}
		name, text := m.Name, fmt.Sprint(value)
		if n, ok := value.(json.Number); ok && name == "elapsed_ns" {
			ns, _ := n.Int64() // a schema says that it is one
			name, text = "elapsed", time.Duration(ns).Round(time.Millisecond).String()
		}
		if strings.ContainsAny(text, " \"=\n") {
			text = fmt.Sprintf("%q", text)
		}
		line += "  " + name + "=" + text
	}
	_, err := fmt.Fprintln(w, strings.ReplaceAll(cli.Printable(line), "\n", " "))
	return err
}
