package node

import (
	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
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
  muster node list --connected no --for 10m  # by the brokers' word
  muster node list --unseen 30d --limit 0  # all of them
  muster node list --faulty --sort expires -o wide  # cannot renew, and why

Facts are those that the node sent when it last enrolled, renewed or was
reconfigured, and that fleet.facts of provisioner.yaml names. -o json has them.`

func addList(parent *kingpin.CmdClause, all cli.Verbs) {
	f := &filter{}
	c := parent.Command("list", "List nodes with state, certificate and last contact.").HelpLong(listHelp)
	f.addFlags(c)
	list.Add(c, all, &f.Filter)
	all.Check(c, f.check)
}

var list = verb.Paged[fleet.Page, fleet.Node]{
	Route:   "/v1/nodes",
	Parts:   func(p *fleet.Page) (*[]fleet.Node, string) { return &p.Nodes, p.Next },
	Sum:     func(p *fleet.Page) string { return verb.Nodes(p.Total) + ": " + verb.Tallied(p.States) },
	Empty:   "no nodes match",
	Columns: columns,
}

var columns = []cli.Column[fleet.Node]{
	{Title: "NODE", Value: func(n fleet.Node) any { return n.Identity }},
	{Title: "STATE", Value: func(n fleet.Node) any { return stateOf(&n) }},
	{Title: "SITE", Value: func(n fleet.Node) any { return n.Site }},
	{Title: "EXPIRES", Value: func(n fleet.Node) any { return n.Expires }},
	{Title: "CONNECTED", Value: func(n fleet.Node) any { return n.Liveness().Connected }},
	{Title: "LAST SEEN", Value: func(n fleet.Node) any { return n.Seen }},
	{Title: "CHANGED", Value: func(n fleet.Node) any { return n.Changed }},
	{Title: "SINCE", Wide: true, Value: func(n fleet.Node) any { return n.Liveness().Since }},
	{Title: "BROKER", Wide: true, Value: func(n fleet.Node) any { return n.Liveness().Broker }},
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
