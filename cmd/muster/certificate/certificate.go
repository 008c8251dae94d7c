// Package certificate implements "muster certificate": service certificates of nodes.
package certificate

import (
	"net/url"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
	"muster/internal/wire"
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

func pathOf(id wire.Identity, name, order string) string {
	return route + "/" + string(id) + "/" + url.PathEscape(name) + order
}

func addName(c *kingpin.CmdClause, name *string) {
	c.Arg("name", "Name of the service certificate.").Required().StringVar(name)
}
