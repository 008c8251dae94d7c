package main

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

	"muster/internal/cli"
	"muster/internal/wire"
	"muster/provisioner"
)

// eventsVerb is "muster events".
type eventsVerb struct {
	operator
	follow                 bool
	since, typ, node, code string
}

const eventsHelp = `Prints what has happened in the fleet, the oldest first, a line for each event: when,
what, which node, and why. docs/events.md has all types. With --json each line is
the whole event, a CloudEvent.

With --follow it goes on with what happens from then on, until it is interrupted.

  muster events --since 1d --type node.refused
  muster events --follow --node web1.example.net
  muster events --since 2026-03-01T02:00:00Z --code denied --json

Exits with 0 if that is done, 1 if it failed, or with --follow once it is interrupted, 2
if the command line makes no sense.`

// addEvents adds "muster events".
func addEvents(app *kingpin.Application, all verbs) {
	v := &eventsVerb{}
	c := app.Command("events", "Show what happens in the fleet.").HelpLong(eventsHelp)
	c.Flag("follow", "Go on with what happens from now on.").Short('f').BoolVar(&v.follow)
	c.Flag("since", "Begin so long ago, as 1h or 7d, or at a time as in RFC 3339.").Default("1h").StringVar(&v.since)
	c.Flag("type", "Only types that begin with this; io.muster. may be left out, as in node.refused.").PlaceHolder("TYPE").StringVar(&v.typ)
	c.Flag("node", "Only this node's.").PlaceHolder("NAME").StringVar(&v.node)
	c.Flag("code", "Only refusals and alarms with this code.").PlaceHolder("CODE").StringVar(&v.code)
	v.add(c, all)
	all.Check(c, func() error { _, err := v.query(time.Now()); return err })
	all[c.FullCommand()] = v.run
}

// query returns what is asked for, or all that is wrong with it.
func (v *eventsVerb) query(now time.Time) (provisioner.EventQuery, error) {
	q := provisioner.EventQuery{Type: v.typ, Code: wire.Code(v.code), Once: !v.follow}
	var mistakes []error
	if d, err := cli.ParseDuration(v.since); err == nil {
		q.Since = now.Add(-d)
	} else if q.Since, err = time.Parse(time.RFC3339, v.since); err != nil || q.Since.IsZero() { // which to us is no time
		mistakes = append(mistakes, fmt.Errorf("--since: %q, want 1h, 7d or a time like %s", v.since, now.UTC().Format(time.RFC3339)))
	} else if q.Since.After(now.Add(cli.Day)) { // clocks differ: it may be the time of an event
		mistakes = append(mistakes, fmt.Errorf("--since: %s is yet to come, want what is over; --follow alone shows what comes", v.since))
	}
	if v.typ != "" && !strings.HasPrefix(v.typ, "io.") {
		q.Type = "io.muster." + v.typ
	}
	if !provisioner.EventTypeBegins(q.Type) {
		mistakes = append(mistakes, fmt.Errorf("--type: no type begins with %q", q.Type))
	}
	if codes := provisioner.EventCodes(); v.code != "" && !slices.Contains(codes, q.Code) {
		mistakes = append(mistakes, fmt.Errorf("--code: no refusal and no alarm has the code %q%s", v.code, cli.DidYouMean(v.code, codes)))
	}
	if v.node != "" {
		id, err := wire.ParseIdentity(v.node)
		if err != nil {
			mistakes = append(mistakes, fmt.Errorf("--node: %w", err))
		}
		q.Node = id
	}
	return q, errors.Join(mistakes...)
}

func (v *eventsVerb) run(ctx context.Context) error {
	q, err := v.query(time.Now())
	if err != nil {
		return err
	}
	client, err := v.client(ctx)
	if err != nil {
		return err
	}
	none := true
	err = client.Events(ctx, q, func(e *provisioner.StoredEvent, line []byte) error {
		none = false
		if v.json {
			_, err := os.Stdout.Write(append(bytes.Clone(line), '\n'))
			return err
		}
		return writeEvent(os.Stdout, e)
	})
	if err == nil && v.follow && ctx.Err() == nil {
		return errors.New("the provisioner has ended the stream, as when it is stopped: run this again once it serves, or with --url at another")
	}
	if err == nil && none {
		v.say("no such event since %s", instant(q.Since))
	}
	return err
}

// writeEvent writes an event as a line for a person: when, what, which node, and
// the members that say most, in the order of the table.
func writeEvent(w io.Writer, e *provisioner.StoredEvent) error {
	var data map[string]any
	d := json.NewDecoder(bytes.NewReader(e.Data))
	d.UseNumber()
	if err := d.Decode(&data); err != nil {
		return fmt.Errorf("event %s: %w", e.ID, err)
	}
	subject := e.Subject
	if subject == "" {
		subject = "-"
	}
	line := fmt.Sprintf("%s  %-18s  %s", instant(e.Time), strings.TrimPrefix(string(e.Type), "io.muster."), subject)
	for _, m := range provisioner.EventMembers {
		value, ok := data[m.Name]
		if !ok || slices.Contains([]string{"node", "identity", "digest", "attempt", "policy", "boot", "signer"}, m.Name) {
			continue
		}
		text := fmt.Sprint(value)
		if m.Name == "elapsed_ns" {
			if n, ok := value.(json.Number); ok {
				ns, _ := n.Int64() // a schema says that it is one
				line += "  elapsed=" + time.Duration(ns).Round(time.Millisecond).String()
			}
			continue
		}
		if strings.ContainsAny(text, " \"=\n") {
			text = fmt.Sprintf("%q", text)
		}
		line += "  " + m.Name + "=" + text
	}
	_, err := fmt.Fprintln(w, strings.ReplaceAll(cli.Printable(line), "\n", " "))
	return err
}
