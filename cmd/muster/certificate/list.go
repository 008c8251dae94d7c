package certificate

import (
	"fmt"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/provisioner/services"
)

const listHelp = `Lists service certificates, also those that nodes asked for and did not get. All
filters that are given must match. NOTE says why the last request was not granted, or
what the node reports. docs/service-certificates.md explains the states.

  muster certificate list --expiring 7d --stuck
  muster certificate list haproxy --match 'web*.example.net'
  muster certificate list --waiting -o wide`

func addList(parent *kingpin.CmdClause, all cli.Verbs) {
	q := &verb.Filter{}
	c := parent.Command("list", "List service certificates.").HelpLong(listHelp)
	q.Arg(c.Arg("name", "Only service certificates with this name."), "name")
	q.Flag(c, "match").HintAction(verb.NodeNames)
	q.Flag(c, "state*").HintOptions("waiting", "refused", "revoked", "expired", "current", "none")
	q.Flag(c, "expiring")
	q.Switch(c, "stuck")
	q.Switch(c, "waiting")
	list.Add(c, all, q)
	all.Check(c, func() error {
		_, err := services.ParseQuery(q.Values, time.Now())
		return q.Flags(err)
	})
}

var list = verb.Paged[services.Page, services.Listed]{
	Route: route,
	Parts: func(p *services.Page) (*[]services.Listed, string) { return &p.Certificates, p.Next },
	Sum: func(p *services.Page) string {
		return fmt.Sprintf("%s: %s; stuck %d", counted(p.Total), verb.Tallied(p.States), p.Stuck)
	},
	Empty:   "no service certificates match",
	Columns: columns,
}

var columns = []cli.Column[services.Listed]{
	{Title: "NODE", Value: func(l services.Listed) any { return l.Node }},
	{Title: "NAME", Value: func(l services.Listed) any { return l.Name }},
	{Title: "STATE", Value: func(l services.Listed) any { return stateOf(&l) }},
	{Title: "NAMES", Value: func(l services.Listed) any { return l.Names }},
	{Title: "SERIAL", Value: func(l services.Listed) any { return l.Serial }},
	{Title: "EXPIRES", Value: func(l services.Listed) any { return l.Expires }},
	{Title: "NOTE", Value: func(l services.Listed) any { return strings.ReplaceAll(l.Note, "\n", "; ") }},
	{Title: "NODE SAYS", Wide: true, Value: func(l services.Listed) any { return l.OwnWord }},
	{Title: "SOURCE", Wide: true, Value: func(l services.Listed) any { return l.Source }},
	{Title: "PROFILE", Wide: true, Value: func(l services.Listed) any { return l.Profile }},
	{Title: "NETWORK", Wide: true, Value: func(l services.Listed) any { return l.Network }},
	{Title: "CHANGED", Wide: true, Value: func(l services.Listed) any { return l.Changed }},
}

func stateOf(l *services.Listed) string {
	if l.Stuck {
		return string(l.State) + ", stuck"
	}
	return string(l.State)
}

func counted(n int) string { return verb.Counted(n, "service certificate", "service certificates") }
