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

  muster certificate approve web1.example.net haproxy --why 'ticket 17'
  muster certificate approve 'web*.example.net' haproxy --dry-run`

const rejectHelp = `Refuses the names that a node asked for. The node may ask for other names.

  muster certificate reject web1.example.net haproxy --why 'not its address'
  muster certificate reject 'lab*.example.net' vpn --yes`

const revokeHelp = `Puts all certificates of a service certificate on the CRL. The node may ask for
another one with a new key: 'muster-server certificate rekey NAME' does that.

  muster certificate revoke web1.example.net haproxy --why 'key on a backup'
  muster certificate revoke 'web*.example.net' haproxy --why 'replaced' --yes`

const orderHelp = `

NODE is a name, or a pattern: then the verb shows what matches and asks first; --yes
answers, --dry-run only shows. A request that changed meanwhile is left alone.`

// order is "muster certificate approve", "reject" or "revoke".
type order struct {
	verb.Bulk

	verb, done string
	node       wire.Pattern
	name       string
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
	v.AddFlags(c, all)
	all[c.FullCommand()] = v.run
}

// choose gets those that a pattern means, or the one that is named.
func (v *order) choose(ctx context.Context, several bool) (*services.Page, error) {
	q := url.Values{"match": {string(v.node)}, "name": {v.name}}
	if several && v.verb != "revoke" {
		q.Set("waiting", "true")
	} else if several {
		q["state"] = []string{"current", "waiting", "refused"}
	}
	page, err := list.Get(ctx, &v.Operator, q, 0)
	if err == nil && page.Total == 0 {
		err = fmt.Errorf("%s of %s: %w", v.name, v.node, services.ErrNone)
	}
	return page, err
}

func (v *order) run(ctx context.Context) error {
	several := strings.ContainsAny(string(v.node), "*?")
	page, err := v.choose(ctx, several)
	if err != nil {
		return err
	}
	chosen := page.Certificates
	table := cli.NewListTable(&v.Output.Output, chosen, columns)
	if v.DryRun {
		return verb.Show(&v.Output, page, func(*services.Page) fmt.Stringer {
			v.After("would %s %s", v.verb, counted(len(chosen)))
			return table
		})
	}
	if several && !v.Yes {
		if err := verb.Agree(ctx, "certificate "+v.verb, counted(len(chosen)), table); err != nil {
			return err
		}
	}
	var errs []error
	page.Certificates = []services.Listed{}
	for _, l := range chosen {
		q := httpapi.CertificateOrder{Why: v.Why}
		if v.verb != "revoke" {
			q.Request = l.Request
		}
		if err := verb.Send(ctx, &v.Operator, pathOf(l.Node, l.Name, "/"+v.verb), q); err != nil {
			errs = append(errs, fmt.Errorf("%s of %s: %w", l.Name, l.Node, err))
			continue
		}
		page.Certificates = append(page.Certificates, l)
		v.Say("%s of %s, %s, %s", l.Name, l.Node, strings.Join(l.Names, ", "), v.done)
	}
	err = verb.ShowDone(&v.Output, page, func(*services.Page) fmt.Stringer { return nil })
	return errors.Join(append(errs, err)...)
}
