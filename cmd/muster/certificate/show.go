package certificate

import (
	"context"
	"fmt"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/internal/wire"
	"muster/provisioner/fleet"
)

const showHelp = `Shows a service certificate: what the node has, what it asked for last and why it did
not get that, what it reports, and what can be done.

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
	}, func(o *verb.Operator, r *fleet.CertificateReport) fmt.Stringer {
		l := &cli.Labels{}
		l.Addf("Service certificate", "%s of %s", r.Name, r.Node)
		l.Add("State", stateOf(&r.Listed))
		l.AddIf("Node says", r.OwnWord)
		l.Add("Specification", strings.TrimSpace(r.Source+" "+r.Profile+" "+r.Network))
		l.AddIf("Names", strings.Join(r.Names, "\n"))
		if i := r.Entry.Current; i != nil {
			l.Addf("Certificate", "%s, from %s to %s", i.Serial, verb.Instant(i.NotBefore), verb.Instant(i.NotAfter))
			l.Add("Key SHA-256", i.KeyHash)
		}
		if a := r.Entry.Approval; a != nil {
			l.Addf("Approved", "%s by %s%s", verb.Instant(a.At), a.By, verb.Because(a.Why))
		}
		for _, f := range r.Findings {
			l.Add("Status", f.Text)
		}
		l.AddIf("What can be done", strings.Join(o.Advice(r.Findings), "\n"))
		return l
	})
}
