// Package certificate implements "muster certificate": service certificates of nodes.
package certificate

import (
	"context"
	"net/url"
	"strconv"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/internal/wire"
	"muster/provisioner/services"
)

const help = `Service certificates are those that a node has besides its own, for its services.
'muster-server certificate' on a node shows the same from its side.`

// Add adds the verbs.
func Add(app *kingpin.Application, all cli.Verbs) {
	c := app.Command("certificate", "Service certificates of nodes.").HelpLong(help)
	addList(c, all)
	addShow(c, all)
	addOrders(c, all)
}

const route = "/v1/certificates"

// list gets at most limit service certificates, 0: all. The answer has the counts of all.
func list(ctx context.Context, o *verb.Operator, v url.Values, limit int) (*services.Page, error) {
	whole := &services.Page{Certificates: []services.Listed{}}
	v.Set("limit", strconv.Itoa(verb.PageLimit(limit, 0)))
	return whole, verb.Pages(ctx, o, route, v, func(p *services.Page) (string, int) {
		p.Certificates = append(whole.Certificates, p.Certificates...)
		*whole = *p
		return p.Next, verb.PageLimit(limit, len(whole.Certificates))
	})
}

func pathOf(id wire.Identity, name, order string) string {
	return route + "/" + string(id) + "/" + url.PathEscape(name) + order
}

func addName(c *kingpin.CmdClause, name *string) {
	c.Arg("name", "Name of the service certificate.").Required().StringVar(name)
}
