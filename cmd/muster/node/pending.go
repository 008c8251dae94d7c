package node

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"muster/provisioner/waiting"

	"muster/provisioner/orders"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/internal/wire"
	"muster/provisioner/httpapi"
)

// addWaitingFlags adds the flags that select waiting machines.
func addWaitingFlags(c *kingpin.CmdClause, f *httpapi.WaitingFilter) {
	addNameFlags(c, &f.Filter)
	cli.Flag(c, "address").StringVar(&f.From)
}

// pendingKeys asks for the machines that wait.
func pendingKeys(ctx context.Context, o *verb.Operator, f *httpapi.WaitingFilter) (*httpapi.Pending, error) {
	return verb.Get[*httpapi.Pending](ctx, o, "/v1/waiting?"+f.Query().Encode())
}

const pendingHelp = `Lists the machines that wait, the longest first, with what they presented: for an
operator's approval (approval_pending), until the policy no longer puts them off
(deferred), or for a name that another key has (identity_taken, see 'muster node
grant'). A machine asks every 3 seconds, of thousands every 20. Compare the key with what
'openssl pkey -in private.pem -pubout -outform DER | sha256sum' says on the machine. Facts
are the machine's own word.

  muster node pending --details
  muster node pending --address 192.0.2.0/24 --fact rack=r4
  muster node pending --rejected`

func addPending(parent *kingpin.CmdClause, all cli.Verbs) {
	var f httpapi.WaitingFilter
	var details, rejected bool
	c := parent.Command("pending", "List the machines that wait.").HelpLong(pendingHelp)
	addWaitingFlags(c, &f)
	cli.Flag(c, "details").BoolVar(&details)
	cli.Flag(c, "rejected").BoolVar(&rejected)
	all.Check(c, func() error { _, err := f.Compile(); return verb.Flags(err) })
	verb.Query(c, all, func(ctx context.Context, o *verb.Operator) (*httpapi.Pending, error) {
		return pendingKeys(ctx, o, &f)
	}, func(o *verb.Operator, p *httpapi.Pending) io.WriterTo {
		switch {
		case rejected && len(p.Rejected) == 0:
			o.Say("no keys are rejected")
		case rejected:
			return rejections(p.Rejected)
		case len(p.Waiting) == 0 && !f.IsZero():
			o.Say("no machines that fit are waiting")
		case len(p.Waiting) == 0:
			o.Say("no machines are waiting")
		case details:
			return waiters(p.Waiting)
		default:
			return waitingTable(p.Waiting)
		}
		return nil
	})
}

func rejections(rejected []*orders.Answer) io.WriterTo {
	t := cli.NewTable("NODE", "KEY", "REJECTED", "BY", "WHY")
	for _, a := range rejected {
		t.Add(string(a.Identity), verb.Short(a.KeyHash), verb.Instant(a.At), a.By, a.Why)
	}
	return t
}

func waitingTable(keys []*waiting.Key) *cli.Table {
	t := cli.NewTable("NODE", "KEY", "WAITS FOR", "SINCE", "ASKED", "FROM", "SITE", "TOKEN ID")
	for _, w := range keys {
		t.Add(string(w.Identity), verb.Short(w.KeyHash), string(w.Code), verb.Instant(w.Since), fmt.Sprint(w.Asked), verb.OrDash(w.Source), verb.OrDash(w.Site), string(w.Token))
	}
	return t
}

// waiters says all that is known of each machine that waits.
func waiters(keys []*waiting.Key) io.WriterTo {
	var parts cli.Parts
	for _, w := range keys {
		l := &cli.Labels{}
		l.Add("Node", string(w.Identity))
		l.Addf("Key SHA-256", "%s (%s)", w.KeyHash, w.KeyType)
		l.Addf("Waits for", "%s: %s", w.Code, wire.MeaningOf(w.Code).Public)
		if len(w.Reasons) > 0 {
			l.Add("Policy says", strings.Join(w.Reasons, "\n"))
		}
		l.Addf("Asked", "%s, first %s, last %s", verb.Counted(w.Asked, "time", "times"), verb.Instant(w.Since), verb.Instant(w.LastAsked))
		l.Addf("From", "%s, site %s", w.Source, verb.OrDash(w.Site))
		l.Addf("Token", "%s, signed by %s", w.Token, w.SignerName)
		if len(w.Names) > 0 {
			l.Add("Other names it wants", strings.Join(w.Names, "\n"))
		}
		for _, name := range slices.Sorted(maps.Keys(w.Facts)) {
			l.Addf("Fact", "%s = %s", name, w.Facts[name])
		}
		parts = append(parts, l)
	}
	return parts
}
