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
what the node reports. States:

  waiting    for an approval; see 'muster certificate approve'
  refused    the last request was refused, whatever the node has
  revoked    all its certificates are revoked
  expired    the node did not renew it
  current    it is good
  none       the node has a specification, and has not asked yet

  muster certificate list --expiring 7d --stuck
  muster certificate list haproxy --match 'web*.example.net'
  muster certificate list --waiting -o wide`

func addList(parent *kingpin.CmdClause, all cli.Verbs) {
	v := url.Values{}
	var name, match, expiring, sort, cursor string
	var states []string
	var stuck, waiting bool
	var limit int
	c := parent.Command("list", "List service certificates.").HelpLong(listHelp)
	c.Arg("name", "Only service certificates with this name.").StringVar(&name)
	cli.Flag(c, "match").HintAction(verb.NodeNames).StringVar(&match)
	cli.Flag(c, "state").HintOptions("waiting", "refused", "revoked", "expired", "current", "none").StringsVar(&states)
	cli.Flag(c, "expiring").StringVar(&expiring)
	cli.Flag(c, "stuck").BoolVar(&stuck)
	cli.Flag(c, "waiting").BoolVar(&waiting)
	cli.Flag(c, "sort").HintOptions("name", "expires", "changed").Default("name").StringVar(&sort)
	cli.IntIn(cli.Flag(c, "limit").Default("100"), &limit, 0, math.MaxInt)
	cli.Flag(c, "cursor").StringVar(&cursor)
	all.Check(c, func() error {
		v = url.Values{"state": states}
		for parameter, text := range map[string]string{
			"name": name, "match": match, "expires_before": expiring, "sort": sort, "cursor": cursor,
		} {
			if text != "" {
				v.Set(parameter, text)
			}
		}
		for parameter, is := range map[string]bool{"stuck": stuck, "waiting": waiting} {
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
		o.After("%s: %s; stuck %d%s", verb.Counted(p.Total, "service certificate", "service certificates"),
			verb.Tallied(p.States), p.Stuck, more)
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
	{Title: "CODE", Wide: true, Value: func(l services.Listed) any { return l.Code }},
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
