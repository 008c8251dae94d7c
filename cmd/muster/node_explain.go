package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
	"muster/provisioner/fleet"
)

// nodeExplainVerb is "muster node explain".
type nodeExplainVerb struct{ nodeQuestion }

const nodeExplainHelp = `Says in words how a machine stands and why, what it was last ordered to do and whether
it has, who has approved or rejected its key, what it was refused for since it was last
let in, and what can be done about it. It knows machines, too, that were never let in.`

func addNodeExplain(parent *kingpin.CmdClause, all verbs) {
	v := &nodeExplainVerb{}
	all[v.addTo(parent, all, "explain", "Say how a machine stands, why, and what can be done.", nodeExplainHelp).FullCommand()] = v.run
}

func (v *nodeExplainVerb) run(ctx context.Context) error {
	var e fleet.Explanation
	if err := v.askAbout(ctx, "/explain", &e); err != nil {
		return err
	}
	return v.print(&e, func() error { return writeExplanation(&e) })
}

// writeExplanation prints an explanation. What it quotes may be a stranger's words.
func writeExplanation(e *fleet.Explanation) error {
	var b strings.Builder
	line := func(format string, args ...any) {
		fmt.Fprintln(&b, strings.ReplaceAll(cli.Printable(fmt.Sprintf(format, args...)), "\n", " "))
	}
	line("%s is %s.", e.Identity, nameState(string(e.State)))
	var do []string
	for _, f := range e.Findings {
		line("  %s", f.Text)
		for _, a := range f.Do {
			if s := actionText(a); !slices.Contains(do, s) {
				do = append(do, s)
			}
		}
	}
	if len(e.Refusals) > 0 {
		line("Refused:")
	}
	for i := range e.Refusals {
		m := &e.Refusals[i]
		line("  %s  %s", instant(m.At), momentText(m))
	}
	if len(do) > 0 {
		line("What can be done:")
	}
	for _, s := range do {
		line("  - %s", s)
	}
	_, err := os.Stdout.WriteString(b.String())
	return err
}

// actionText is what can be done as a command line and what it is for, or in words.
func actionText(a fleet.Action) string {
	if command := a.Command(); command != "" {
		return command + ": " + a.Text
	}
	return a.Text
}

// nameState is a state as a person says it.
func nameState(state string) string {
	if state == "none" {
		return "not known here"
	}
	return state
}
