package certificate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/internal/wire"
	"muster/provisioner/fleet"
)

const showHelp = `Shows a service certificate: the names and serial of what the node has, what it asked
for last and why it did not get that, what the node reports, and what can be done.

  muster certificate show web1.example.net haproxy
  muster certificate show web1.example.net haproxy -o json`

func addShow(parent *kingpin.CmdClause, all cli.Verbs) {
	var id wire.Identity
	var name string
	c := parent.Command("show", "Show a service certificate, and what to do.").HelpLong(showHelp)
	cli.Arg(c.Arg("node", "Name of the node.").HintAction(verb.NodeNames).Required(), &id, wire.ParseName)
	addName(c, &name)
	verb.Query(c, all, func(ctx context.Context, o *verb.Operator) (*fleet.CertificateReport, error) {
		return verb.Get[*fleet.CertificateReport](ctx, o, pathOf(id, name, ""))
	}, show)
}

func show(o *verb.Operator, r *fleet.CertificateReport) fmt.Stringer {
	l, e := &cli.Labels{}, r.Entry
	l.Addf("Service certificate", "%s of %s", r.Name, r.Node)
	l.Add("State", stateOf(&r.Listed))
	l.AddIf("Node says", r.OwnWord)
	l.Add("Source", r.Source)
	l.AddIf("Profile", r.Profile)
	l.AddIf("Network", r.Network)
	if i := e.Current; i != nil {
		l.Addf("Certificate", "%s, from %s to %s", i.Serial, verb.Instant(i.NotBefore), verb.Instant(i.NotAfter))
		l.Add("Names", strings.Join(e.Names, "\n"))
		l.Add("For", strings.Join(e.Usages, ", "))
		l.Add("Key SHA-256", i.KeyHash)
	}
	if a := e.Approval; a != nil {
		l.Addf("Approved", "%s by %s%s", verb.Instant(a.At), a.By, verb.Because(a.Why))
	}
	l.Add("Changed", verb.Instant(e.UpdatedAt))
	var do []string
	for _, f := range r.Findings {
		l.Add("Status", f.Text)
		for _, a := range f.Do {
			text := o.Pasteable(a.Text)
			if command := a.Command(); command != "" {
				text = command + o.Chosen() + ": " + text
			}
			if !slices.Contains(do, text) {
				do = append(do, text)
			}
		}
	}
	l.AddIf("What can be done", strings.Join(do, "\n"))
	return l
}
