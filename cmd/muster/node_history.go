package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
	"muster/provisioner/fleet"
)

// nodeHistoryVerb is "muster node history".
type nodeHistoryVerb struct{ nodeQuestion }

const nodeHistoryHelp = `Shows what has happened to a machine, the oldest first: tokens presented, decisions,
certificates, confirmations, refusals, commands, and what operators decided and why. The 64
newest revisions of its record are kept, events as long as there is room for them.
"attempted" is somebody who used the name and has proven nothing, "kept_out" whoever
has a certificate of it that brokers of the fleet do not take.`

func addNodeHistory(parent *kingpin.CmdClause, all verbs) {
	v := &nodeHistoryVerb{}
	all[v.addTo(parent, all, "history", "Show what has happened to a machine.", nodeHistoryHelp).FullCommand()] = v.run
}

func (v *nodeHistoryVerb) run(ctx context.Context) error {
	var past fleet.Past
	if err := v.askAbout(ctx, "/history", &past); err != nil {
		return err
	}
	return v.print(&past, func() error { return v.write(&past) })
}

func (v *nodeHistoryVerb) write(p *fleet.Past) error {
	var t cli.Table
	t.Add("TIME", "WHAT", "DETAILS")
	for i := range p.Moments {
		m := &p.Moments[i]
		t.Add(instant(m.At), string(m.Kind), momentText(m))
	}
	if _, err := t.WriteTo(os.Stdout); err != nil {
		return err
	}
	if !p.Complete {
		v.say("what happened before is not kept")
	}
	return nil
}

// momentText is all about a moment but when and what.
func momentText(m *fleet.Moment) string {
	var parts []string
	add := func(format string, value string) {
		if value != "" {
			parts = append(parts, fmt.Sprintf(format, value))
		}
	}
	add("%s", string(m.Verb))
	add("%s", string(m.Code))
	add("%s", string(m.Reason))
	add("%s", m.Cause)
	add("certificate %s", m.Serial)
	if !m.Until.IsZero() {
		add("until %s", instant(m.Until))
	}
	add("configuration %s", short(m.Digest))
	add("policy %s", short(m.Policy))
	add("token %s", string(m.Token))
	add("key %s", short(m.Key))
	add("from %s", m.Source)
	add("by %s", m.By)
	add("why: %s", m.Why)
	if m.Times > 1 {
		parts = append(parts, fmt.Sprintf("%d times until %s", m.Times, instant(m.Last)))
	}
	return strings.Join(parts, ", ")
}
