package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/fleet"
)

// nodeQuestion is what the verbs that ask about one node have in common.
type nodeQuestion struct {
	operator
	identity string
}

// nodeQuestionHelp is formatted with the verb.
const nodeQuestionHelp = `

  muster node %[1]s web1.example.net
  muster node %[1]s web1.example.net --json

Exits with 0 if there is an answer, 1 if nothing is known of this name or nobody could
be asked, 2 if the command line makes no sense.`

// addTo adds a verb that asks about one node.
func (v *nodeQuestion) addTo(parent *kingpin.CmdClause, all verbs, verb, help, long string) *kingpin.CmdClause {
	c := parent.Command(verb, help).HelpLong(long + fmt.Sprintf(nodeQuestionHelp, verb))
	c.Arg("node", "Its name.").Required().StringVar(&v.identity)
	v.add(c, all)
	all.Check(c, func() error { _, err := wire.ParseIdentity(v.identity); return err })
	return c
}

// askAbout asks the provisioner what about the node.
func (v *nodeQuestion) askAbout(ctx context.Context, what string, out any) error {
	return v.ask(ctx, http.MethodGet, "/v1/nodes/"+v.identity+what, nil, out)
}

// nodeShowVerb is "muster node show".
type nodeShowVerb struct{ nodeQuestion }

const nodeShowHelp = `Shows what is on record of a machine: its state, its certificates, on what ground and
by which policy it was let in, with which token, and those of its facts that are kept.
'muster node explain' says what that means, 'muster node history' how it came about.`

func addNodeShow(parent *kingpin.CmdClause, all verbs) {
	v := &nodeShowVerb{}
	all[v.addTo(parent, all, "show", "Show what is on record of a machine.", nodeShowHelp).FullCommand()] = v.run
}

func (v *nodeShowVerb) run(ctx context.Context) error {
	var report fleet.Report
	if err := v.askAbout(ctx, "", &report); err != nil {
		return err
	}
	return v.print(&report, func() error { return writeNode(&report) })
}

// writeNode prints what is on record.
func writeNode(report *fleet.Report) error {
	r := report.Record
	var l cli.Labels
	l.Add("Node", string(r.Identity))
	l.Add("State", string(r.State))
	if o := r.Operator; o != nil {
		l.Addf("Ordered by", "%s%s", o.By, because(o.Why))
	}
	if r.Cloned != nil {
		l.Addf("Cloned", "two machines use its key, noticed %s", instant(r.Cloned.At))
	}
	addIssued(&l, "Certificate", r.Current)
	addIssued(&l, "Offered", r.Next)
	l.Add("Let in", string(r.Decision.Reason))
	if len(r.Decision.Notes) > 0 {
		l.Add("Policy's words", strings.Join(r.Decision.Notes, "\n"))
	}
	l.Add("Policy", or(short(r.Decision.Policy), "-"))
	l.Add("Token ID", or(string(r.Token), "-"))
	l.Add("Site", or(string(r.Site), "-"))
	l.Add("From", or(r.Source, "-"))
	l.Add("Agent", or(r.Agent, "-"))
	for _, f := range r.Facts {
		l.Addf("Fact", "%s = %s", f.Name, f.Value)
	}
	l.Add("First Enrolled", instant(r.FirstEnrolledAt))
	l.Add("Provisioned", instant(r.ProvisionedAt))
	l.Add("Changed", instant(r.UpdatedAt))
	l.Add("Last heard of", instant(report.Seen))
	if g := report.Granted(); g != nil {
		lets := ""
		if report.GrantOver {
			lets = "\nit lets no key in any more: another machine has got or lost the name since"
		}
		l.Addf("Granted", "to another key until %s, by %s%s%s", instant(g.ExpiresAt), g.By, because(g.Why), lets)
	}
	_, err := l.WriteTo(os.Stdout)
	return err
}

// addIssued adds a certificate, if there is one.
func addIssued(l *cli.Labels, label string, i *provisioner.Issued) {
	if i == nil {
		return
	}
	l.Addf(label, "%s, from %s to %s", i.Serial, instant(i.NotBefore), instant(i.NotAfter))
	l.Add("Key SHA-256", i.KeyHash)
	l.Add("Configuration", short(i.Digest))
}
