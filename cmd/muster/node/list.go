package node

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/internal/paging"
	"muster/provisioner"
	"muster/provisioner/fleet"
)

const listHelp = `Lists nodes on record. All filters that are given must match; see 'muster help
filters'. The last line counts the nodes by state, on standard error. Only the first
100 are listed, unless --limit says otherwise.

  muster node list --state enrolled        # admitted, and not yet confirmed
  muster node list --expires-before 3d --sort expires
  muster node list --match 'web*.example.net' --site ams1 -o json
  muster node list --fact os.name=Debian --fact 'role=db*'
  muster node list --unseen 30d --limit 0  # all of them
  muster node list --faulty --sort expires -o wide  # cannot renew, and why

Facts are those that the node sent when it last enrolled, renewed or was
reconfigured, and that fleet.facts of provisioner.yaml names. -o json has them.`

func addList(parent *kingpin.CmdClause, all cli.Verbs) {
	var f filter
	var sort, cursor string
	var limit int
	c := parent.Command("list", "List nodes with state, certificate and last contact.").HelpLong(listHelp)
	f.addFlags(c)
	cli.Flag(c, "sort").HintOptions("name", "expires", "changed").Default(string(paging.ByName)).StringVar(&sort)
	cli.IntIn(cli.Flag(c, "limit").Default("100"), &limit, 0, math.MaxInt)
	cli.Flag(c, "cursor").StringVar(&cursor)
	query := func() (fleet.Query, error) {
		return f.query(fleet.Query{Query: paging.Query{Sort: paging.Order(sort), Cursor: cursor}}, time.Now())
	}
	all.Check(c, func() error { _, err := query(); return err })
	verb.List(c, all, func(ctx context.Context, o *verb.Operator) (*fleet.Page, error) {
		q, err := query()
		if err != nil {
			return nil, err
		}
		q.Limit = verb.PageLimit(limit, 0)
		list := &fleet.Page{Nodes: []fleet.Node{}}
		return list, pages(ctx, o, q, func(p *fleet.Page) int {
			p.Nodes = append(list.Nodes, p.Nodes...)
			*list = *p
			return verb.PageLimit(limit, len(list.Nodes))
		})
	}, showList)
}

func showList(o *verb.Operator, p *fleet.Page) verb.Shown {
	more := ""
	if p.Next != "" {
		more = fmt.Sprintf("; %d are listed, --limit 0 lists all", len(p.Nodes))
	}
	o.After("%s: %s%s", verb.Nodes(p.Total), countedStates(p.States), more)
	return &verb.Rows[fleet.Node]{Rows: p.Nodes, Empty: "no nodes match", Columns: columns}
}

var columns = []cli.Column[fleet.Node]{
	{Title: "NODE", Value: func(n fleet.Node) any { return n.Identity }},
	{Title: "STATE", Value: func(n fleet.Node) any { return stateOf(&n) }},
	{Title: "SITE", Value: func(n fleet.Node) any { return n.Site }},
	{Title: "EXPIRES", Value: func(n fleet.Node) any { return n.Expires }},
	{Title: "LAST SEEN", Value: func(n fleet.Node) any { return n.Seen }},
	{Title: "CHANGED", Value: func(n fleet.Node) any { return n.Changed }},
	{Title: "PROTOCOL", Wide: true, Value: func(n fleet.Node) any { return string(n.Protocol) }},
	{Title: "TOKEN ID", Wide: true, Value: func(n fleet.Node) any { return n.Token }},
	{Title: "POLICY", Wide: true, Value: func(n fleet.Node) any { return verb.Short(n.Policy) }},
	{Title: "FAULT", Wide: true, Value: func(n fleet.Node) any { return n.Fault }},
	{Title: "FACTS", Wide: true, Value: func(n fleet.Node) any {
		var facts []string
		for _, f := range n.Facts {
			facts = append(facts, f.Name+"="+f.Value)
		}
		return facts
	}},
}

func countedStates(counts map[provisioner.State]int) string {
	var states []string
	for _, s := range []provisioner.State{
		provisioner.StateEnrolled, provisioner.StateProvisioned, provisioner.StateRevoked, provisioner.StateRetired,
	} {
		if n := counts[s]; n > 0 {
			states = append(states, fmt.Sprintf("%d %s", n, s))
		}
	}
	return strings.Join(states, ", ")
}

// stateOf returns the state of a node, and whether it is cloned, renewing or reports a fault.
func stateOf(n *fleet.Node) string {
	s := string(n.State)
	if n.Cloned {
		s += ", cloned"
	}
	if n.Offered && n.State == provisioner.StateProvisioned {
		s += ", renewing"
	}
	if n.Fault != "" {
		s += ", fault"
	}
	return s
}
