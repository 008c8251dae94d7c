package certificate

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/internal/wire"
	"muster/provisioner/httpapi"
	"muster/provisioner/services"
)

const approveHelp = `Lets a node have the names that it asked for. The node gets the certificate at its
next request, within a day. Renewals with the same names need no other approval.

  muster certificate show web1.example.net haproxy
  muster certificate approve web1.example.net haproxy --why 'ticket 17'
  muster certificate approve 'web*.example.net' haproxy --dry-run`

const rejectHelp = `Refuses the names that a node asked for. The node may ask for other names.

  muster certificate reject web1.example.net haproxy --why 'not its address'
  muster certificate reject 'lab*.example.net' vpn --yes`

const revokeHelp = `Puts all certificates of a service certificate on the CRL. The node may ask for
another one with a new key: 'muster-server certificate rekey NAME' does that. 'muster
node revoke' revokes the node with all that it has.

  muster certificate revoke web1.example.net haproxy --why 'key on a backup'
  muster certificate revoke 'web*.example.net' haproxy --why 'replaced' --yes`

const orderHelp = `

NODE is a name, or a pattern: then the verb shows what matches and asks first; --yes
answers, --dry-run only shows. A request that changed meanwhile is left alone.

Exits with 0 if all is done, 1 if not, 2 if the command line is wrong.`

// order is "muster certificate approve", "reject" or "revoke".
type order struct {
	verb.Operator
	verb, done  string
	node        wire.Pattern
	name        string
	dryRun, yes bool
}

// A result is the outcome of an order.
type result struct {
	Verb         string            `json:"verb"`
	Certificates []services.Listed `json:"certificates"` // done, or chosen by --dry-run; as they were before
}

func addOrders(parent *kingpin.CmdClause, all cli.Verbs) {
	addOrder(parent.Command("approve", "Let a node have the names that it asks for.").HelpLong(approveHelp+orderHelp),
		all, "is approved: the node gets it at its next request")
	addOrder(parent.Command("reject", "Refuse the names that a node asks for.").HelpLong(rejectHelp+orderHelp), all,
		"is rejected")
	addOrder(parent.Command("revoke", "Revoke a service certificate.").HelpLong(revokeHelp+orderHelp), all,
		"is revoked")
}

func addOrder(c *kingpin.CmdClause, all cli.Verbs, done string) {
	v := &order{verb: c.Model().Name, done: done}
	cli.Arg(c.Arg("node", "Name of the node, or a pattern of names.").HintAction(verb.NodeNames).Required(), &v.node,
		wire.ParseNamePattern)
	addName(c, &v.name)
	cli.Flag(c, "dry-run").BoolVar(&v.dryRun)
	cli.Flag(c, "yes").BoolVar(&v.yes)
	v.AddFlags(c)
	v.AddWhy(c)
	all.Check(c, func() error {
		if v.dryRun {
			return v.CheckURL()
		}
		return v.CheckChange()
	})
	all[c.FullCommand()] = v.run
}

// fits reports whether a pattern chooses a service certificate.
func (v *order) fits(l *services.Listed) bool {
	if v.verb == "revoke" {
		return l.Serial != "" && l.State != services.StateRevoked
	}
	return l.State == services.StateWaiting
}

func (v *order) run(ctx context.Context) error {
	several := strings.ContainsAny(string(v.node), "*?")
	page, err := list(ctx, &v.Operator, url.Values{"match": {string(v.node)}, "name": {v.name}}, 0)
	if err != nil {
		return err
	}
	r := &result{Verb: v.verb, Certificates: []services.Listed{}}
	var chosen []services.Listed
	for _, l := range page.Certificates {
		if !several || v.fits(&l) {
			chosen = append(chosen, l)
		}
	}
	if len(chosen) == 0 && !several {
		return fmt.Errorf("%s of %s: %w", v.name, v.node, services.ErrNone)
	}
	if v.dryRun || len(chosen) == 0 {
		r.Certificates = append(r.Certificates, chosen...)
		return verb.Show(&v.Output, r, func(*result) fmt.Stringer {
			v.After("would %s %s", v.verb, counted(len(chosen)))
			return cli.NewListTable(&v.Output.Output, chosen, columns)
		})
	}
	if several && !v.yes {
		err := verb.Agree(ctx, "certificate "+v.verb, counted(len(chosen)),
			cli.NewListTable(&v.Output.Output, chosen, columns))
		if err != nil {
			return err
		}
	}
	var errs []error
	for _, l := range chosen {
		q := httpapi.CertificateOrder{Request: l.Request, Why: v.Why}
		if v.verb == "revoke" {
			q.Request = ""
		}
		if err := verb.Send(ctx, &v.Operator, pathOf(l.Node, l.Name, "/"+v.verb), q); err != nil {
			errs = append(errs, fmt.Errorf("%s of %s: %w", l.Name, l.Node, err))
			continue
		}
		r.Certificates = append(r.Certificates, l)
	}
	show := verb.Show(&v.Output, r, func(*result) fmt.Stringer {
		for _, l := range r.Certificates {
			v.Say("%s of %s, %s, %s", l.Name, l.Node, strings.Join(l.Names, ", "), v.done)
		}
		return nil
	})
	return errors.Join(append(errs, verb.Unprinted("it is done", show))...)
}

func counted(n int) string { return verb.Counted(n, "service certificate", "service certificates") }
