package node

import (
	"fmt"
	"strings"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/provisioner"
	"muster/provisioner/fleet"
)

const showHelp = `Shows the record of a node: state, certificates, why and by which policy it was
admitted, its token, and the facts that are kept. 'muster node explain' explains it,
'muster node history' shows how it came about.`

func show(_ *verb.Operator, report *fleet.Report) fmt.Stringer {
	r := report.Record
	l := &cli.Labels{}
	l.Add("Node", string(r.Identity))
	l.Add("State", string(r.State))
	if r.Protocol != provisioner.ProtocolMuster {
		l.Add("Protocol", r.Protocol.String())
	}
	if o := r.Operator; o != nil {
		l.Addf("Ordered by", "%s%s", o.By, verb.Because(o.Why))
	}
	if r.Cloned != nil {
		l.Addf("Cloned", "two machines use its key, detected %s", verb.Instant(r.Cloned.At))
	}
	if r.Fault != nil {
		l.Addf("Fault", "%s, reported %s", r.Fault.Cause, verb.Instant(r.Fault.At))
	}
	addIssued(l, "Certificate", r.Current)
	addIssued(l, "Offered", r.Next)
	l.Add("Admitted", string(r.Decision.Reason))
	l.AddIf("Policy says", strings.Join(r.Decision.Notes, "\n"))
	l.Add("Policy", verb.OrDash(verb.Short(r.Decision.Policy)))
	l.Add("Token ID", verb.OrDash(r.Token))
	l.Add("Site", verb.OrDash(r.Site))
	l.Add("From", verb.OrDash(r.Source))
	l.Add("Agent", verb.OrDash(r.Agent))
	for _, f := range r.Facts {
		l.Addf("Fact", "%s = %s", f.Name, f.Value)
	}
	l.Add("First Enrolled", verb.Instant(r.FirstEnrolledAt))
	l.Add("Provisioned", verb.Instant(r.ProvisionedAt))
	l.Add("Changed", verb.Instant(r.UpdatedAt))
	if c := report.Connection; c != nil {
		l.Addf("Connected", "%s, since %s", c.Connected, verb.Instant(c.Since))
		l.AddIf("Broker", c.Broker)
	}
	l.Add("Last seen", verb.Instant(report.Seen))
	if run := report.Run; run != nil {
		l.Addf("Last run", "%s %s\n%s", run.Outcome(), verb.Instant(run.At), run.Resources.Text())
		l.AddIf("Catalog", verb.Short(run.Version))
		if !run.Since.IsZero() {
			l.Add("Failing since", verb.Instant(run.Since))
		}
		for _, line := range run.Errors {
			l.Add("Error", line)
		}
		if run.LeftOut > 0 {
			l.Addf("Error", "and %d more", run.LeftOut)
		}
	}
	if g := report.Granted(); g != nil {
		lets := ""
		if report.GrantOver {
			lets = "\nit has no effect: the name has another key since"
		}
		l.Addf("Granted", "to another key until %s, by %s%s%s", verb.Instant(g.ExpiresAt), g.By, verb.Because(g.Why),
			lets)
	}
	return l
}

func addIssued(l *cli.Labels, label string, i *provisioner.Issued) {
	if i == nil {
		return
	}
	l.Addf(label, "%s, from %s to %s", i.Serial, verb.Instant(i.NotBefore), verb.Instant(i.NotAfter))
	l.Add("Key SHA-256", i.KeyHash)
	l.Add("Configuration", verb.Short(i.Digest))
}
