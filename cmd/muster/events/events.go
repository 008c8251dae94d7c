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
  muster events --since 2026-03-01T02:00:00Z --code denied -o json

Exits with 0 on success, 1 on failure or if --follow is interrupted, 2 if the
command line is wrong.`

// filter holds the flags of "muster events".
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
	cli.Flag(c, "since").StringVar(&f.since)
	cli.Flag(c, "type").StringVar(&f.typ)
	cli.Parse(cli.Flag(c, "node").HintAction(verb.NodeNames), &f.node, wire.ParseName)
	cli.Flag(c, "code").StringVar(&f.code)
	o.Forms = []string{cli.FormTable, cli.FormJSON, cli.FormJSONL}
	o.AddFlags(c)
	all.Check(c, o.CheckURL)
	all.Check(c, func() error { _, err := f.query(time.Now()); return err })
	all[c.FullCommand()] = func(ctx context.Context) error { return f.run(ctx, o) }
}

// query returns the query, or all mistakes in the flags. With --follow and no --since, Since is zero.
func (f *filter) query(now time.Time) (events.Query, error) {
	q := events.Query{Type: f.typ, Code: wire.Code(f.code), Node: f.node, Once: !f.follow}
	var err error
	switch {
	case f.since == "" && f.follow:
	case f.since == "":
		q.Since = now.Add(-time.Hour)
	default:
		if q.Since, err = span.ParsePast(f.since, now); q.Since.After(now.Add(span.Day)) { // clocks differ by less
			err = fmt.Errorf("%s is in the future: want a time in the past; --follow alone shows new events", f.since)
		}
	}
	if f.typ != "" && !strings.HasPrefix(f.typ, "io.") {
		q.Type = "io.muster." + f.typ
	}
	return q, verb.Flag("since", err)
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
