package node

import (
	"fmt"
	"strings"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/provisioner/fleet"
)

const explainHelp = `Explains the state of a node: why it is so, whether the last command was carried out,
which operator approved or rejected its key, why it was refused since it was last
admitted, and what to do. It also explains nodes that were never admitted.`

// showExplanation prints a line for each sentence, and escapes quoted text, which may come from an attacker.
func showExplanation(o *verb.Operator, e *fleet.Explanation) fmt.Stringer {
	var b strings.Builder
	line := func(format string, args ...any) {
		fmt.Fprintln(&b, strings.ReplaceAll(cli.Printable(fmt.Sprintf(format, args...)), "\n", " "))
	}
	state := string(e.State)
	if state == "none" {
		state = "not enrolled"
	}
	if e.Waiting > 0 {
		state += ", and " + verb.Counted(e.Waiting, "key waits for the name", "keys wait for the name")
	}
	line("%s is %s.", e.Identity, state)
	for _, f := range e.Findings {
		line("  %s", f.Text)
	}
	if len(e.Refusals) > 0 {
		line("Refused:")
	}
	for i := range e.Refusals {
		m := &e.Refusals[i]
		line("  %s  %s", verb.Instant(m.At), momentText(m))
	}
	do := o.Advice(e.Findings)
	if len(do) > 0 {
		line("What can be done:")
	}
	for _, s := range do {
		line("  - %s", s)
	}
	return cli.Text(b.String())
}
