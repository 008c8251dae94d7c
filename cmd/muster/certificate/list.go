package certificate

import (
	"context"
	"fmt"
	"math"
	"net/url"
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
	v := url.Values{}
	var limit int
	c := parent.Command("list", "List service certificates.").HelpLong(listHelp)
	set := func(parameter string) func(string) (string, error) {
		return func(s string) (string, error) { v.Add(parameter, s); return s, nil }
	}
	cli.Arg(c.Arg("name", "Only service certificates with this name."), new(string), set("name"))
	cli.Parse(cli.Flag(c, "match").HintAction(verb.NodeNames), new(string), set("match"))
	cli.ParseEach(cli.Flag(c, "state").HintOptions("waiting", "refused", "revoked", "expired", "current", "none"),
		new([]string), set("state"))
	cli.Parse(cli.Flag(c, "expiring"), new(string), set("expires_before"))
	stuck, waiting := cli.Flag(c, "stuck").Bool(), cli.Flag(c, "waiting").Bool()
	cli.Parse(cli.Flag(c, "sort").HintOptions("name", "expires", "changed").Default("name"), new(string), set("sort"))
	cli.IntIn(cli.Flag(c, "limit").Default("100"), &limit, 0, math.MaxInt)
	cli.Parse(cli.Flag(c, "cursor"), new(string), set("cursor"))
	all.Check(c, func() error {
		for parameter, is := range map[string]bool{"stuck": *stuck, "waiting": *waiting} {
			if is {
				v.Set(parameter, "true")
			}
		}
		_, err := services.ParseQuery(v, time.Now())
		return verb.Flags(err)
	})
	verb.List(c, all, func(ctx context.Context, o *verb.Operator) (*services.Page, error) {
		return list(ctx, o, v, limit)
	}, func(o *verb.Operator, p *services.Page) verb.Shown {
		more := ""
		if p.Next != "" {
			more = fmt.Sprintf("; %d are listed, --limit 0 lists all", len(p.Certificates))
		}
		o.After("%s: %s; stuck %d%s", counted(p.Total), verb.Tallied(p.States), p.Stuck, more)
		return &verb.Rows[services.Listed]{
			Rows:    p.Certificates,
			Empty:   "no service certificates match",
			Columns: columns,
		}
	})
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
