package node

import (
	"fmt"
	"strings"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/provisioner/fleet"
)

const historyHelp = `Shows the history of a node, the oldest first: requests, decisions, certificates,
confirmations, refusals, commands, and orders of operators with their reasons. The 64
newest revisions of the record are kept, and events as long as there is space.
"attempted" is a request that used the name without proof; "kept_out" is one with a
certificate of that name that the brokers refuse.`

func showHistory(o *verb.Operator, p *fleet.History) fmt.Stringer {
	t := cli.NewTable("TIME", "WHAT", "DETAILS")
	for i := range p.Items {
		m := &p.Items[i]
		t.Add(verb.Instant(m.At), string(m.Kind), momentText(m))
	}
	if !p.Complete {
		o.After("earlier history is not kept")
	}
	return t
}

// momentText returns the details of an item of the history, without time and type.
func momentText(m *fleet.HistoryItem) string {
	var parts []string
	add := func(before, value string) {
		if value != "" {
			parts = append(parts, before+value)
		}
	}
	add("", string(m.Verb))
	add("", m.Name)
	add("", string(m.Code))
	add("", string(m.Reason))
	add("", m.Cause)
	add("certificate ", m.Serial)
	if !m.Until.IsZero() {
		add("until ", verb.Instant(m.Until))
	}
	add("configuration ", verb.Short(m.Digest))
	add("policy ", verb.Short(m.Policy))
	add("token ", string(m.Token))
	add("key ", verb.Short(m.Key))
	add("from ", m.Source)
	add("by ", m.By)
	add("why: ", m.Why)
	if m.Times > 1 {
		add("", fmt.Sprintf("%d times until %s", m.Times, verb.Instant(m.Last)))
	}
	return strings.Join(parts, ", ")
}
