// Package events implements "muster events".
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

const help = `Shows events, the oldest first, a line each: time, type, node, and details.
docs/reference/events.md has all types. With -o jsonl each line is the whole event, a
CloudEvent; -o json is an array of them.

Without --since, events of the last hour are shown. --follow shows new events only,
until interrupted; with --since, it shows the events before them first.

  muster events --since 1d --type node.refused
  muster events --follow --node web1.example.net
  muster events --since 1d --by operator:anna
  muster events --since 2026-03-01T02:00:00Z --code denied -o json

Exits with 0 on success, 1 on failure or if --follow is interrupted, 2 if the
command line is wrong.`

// filter holds the flags of "muster events".
type filter struct {
	events.Query
	follow bool
}

// Add adds the verb.
func Add(app *kingpin.Application, all cli.Verbs) {
	f, o := &filter{}, &verb.Operator{}
	c := app.Command("events", "Show what happens in the fleet.").HelpLong(help)
	cli.Flag(c, "follow").Short('f').BoolVar(&f.follow)
	cli.Parse(cli.Flag(c, "since"), &f.Since, past)
	cli.Parse(cli.Flag(c, "type"), &f.Type, func(s string) (string, error) {
		if !strings.HasPrefix(s, "io.") {
			s = "io.muster." + s
		}
		return s, nil
	})
	cli.Parse(cli.Flag(c, "node").HintAction(verb.NodeNames), &f.Node, wire.ParseName)
	cli.Flag(c, "code").StringVar((*string)(&f.Code))
	cli.Flag(c, "by").StringVar(&f.By)
	o.Forms = []string{cli.FormTable, cli.FormJSON, cli.FormJSONL}
	o.AddFlags(c)
	all.Check(c, o.CheckURL)
	all[c.FullCommand()] = func(ctx context.Context) error { return f.run(ctx, o) }
}

// past parses --since.
func past(s string) (time.Time, error) {
	now := time.Now()
	at, err := span.ParsePast(s, now)
	if at.After(now.Add(span.Day)) { // clocks differ by less
		err = fmt.Errorf("%s is in the future: want a time in the past; --follow alone shows new events", s)
	}
	return at, err
}

// query returns the query; with --follow and no --since, Since is zero.
func (f *filter) query(now time.Time) events.Query {
	q := f.Query
	q.Once = !f.follow
	if q.Since.IsZero() && q.Once {
		q.Since = now.Add(-time.Hour)
	}
	return q
}

func (f *filter) run(ctx context.Context, o *verb.Operator) error {
	client, err := o.Client()
	if err != nil {
		return err
	}
	q := f.query(time.Now())
	if q.Since.IsZero() {
		if q.Since, err = client.Clock(ctx); err != nil {
			return err
		}
	}
	shown := 0
	err = client.Events(ctx, q, func(e *events.Stored, line []byte) (err error) {
		shown++
		switch {
		case o.ForPeople():
			err = write(os.Stdout, e)
		case !o.JSON():
			_, err = fmt.Printf("%s\n", line)
		case shown == 1:
			_, err = fmt.Printf("{\"events\": [\n%s", line)
		default:
			_, err = fmt.Printf(",\n%s", line)
		}
		return err
	})
	switch {
	case err != nil:
	case o.JSON() && shown == 0:
		_, err = fmt.Println(`{"events": []}`)
	case o.JSON():
		_, err = fmt.Println("\n]}")
	case !f.follow && shown == 0:
		o.Say("no such events since %s", verb.Instant(q.Since))
	}
	if err == nil && f.follow && ctx.Err() == nil {
		return errors.New("the provisioner has ended the stream, perhaps because it stops: " +
			"run this again, or ask another provisioner with --url")
	}
	return err
}

// omitted are members of events that a line does not show.
var omitted = []string{"node", "identity", "digest", "attempt", "policy", "boot", "signer"}

// write writes an event as a line: time, type, node, and its members in the order of [events.Members].
func write(w io.Writer, e *events.Stored) error {
	var data map[string]any
	d := json.NewDecoder(bytes.NewReader(e.Data))
	d.UseNumber()
	if err := d.Decode(&data); err != nil {
		return fmt.Errorf("event %s: %w", e.ID, err)
	}
	line := fmt.Sprintf("%s  %-18s  %s", verb.Instant(e.Time), strings.TrimPrefix(string(e.Type), "io.muster."),
		verb.OrDash(e.Subject))
	for _, m := range events.Members {
		value, ok := data[m.Name]
		if !ok || slices.Contains(omitted, m.Name) {
			continue
		}
		name, text := m.Name, fmt.Sprint(value)
		if n, ok := value.(json.Number); ok && name == "elapsed_ns" {
			ns, _ := n.Int64() // the schema of events guarantees an integer
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
