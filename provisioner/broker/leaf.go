package broker

import (
	"fmt"
	"strings"

	"muster/internal/wire"
)

// hubDomain is how JetStream at the hub is called from sites.
const hubDomain = "hub"

// LeavesConfig has a server take the servers of sites as its leaves.
type LeavesConfig struct {
	// Listen is where they reach it, host:port. Required.
	Listen string

	// Names are those servers' own, as in their certificates: no other server gets
	// in. Required. A leaf can do in [AccountMuster] what a provisioner can.
	Names []string

	// TrustDomain is that of the installation's certificates. Required.
	TrustDomain string
}

// HubConfig makes a server the leaf of others, at a site. It has no streams then:
// all are at the hub.
type HubConfig struct {
	// URLs are where the others take leaves, host:port each. Required.
	URLs []string

	// Site is what tokens and provisioners there are labeled with. Required. It
	// is a part of the server's name in NATS, by which provisioners anywhere
	// learn where a request comes from.
	Site string
}

// serverName is the server's name in NATS.
func (c ServerConfig) serverName() string {
	if c.Hub == nil {
		return c.Name
	}
	return wire.ServerName(c.Name, c.Hub.Site)
}

// leafText is the block about leaves or the hub, if there are any. Both ends show
// the certificate of a broker, and the one that is come to knows the other by the
// role and name in it: a node's or a provisioner's, of the same authority, is
// good for nothing here. Only the account of the provisioners crosses, where
// messages already name their sender as the broker knows it.
func (c ServerConfig) leafText() string {
	files := fmt.Sprintf("cert_file: %q, key_file: %q, ca_file: %q, timeout: %d", c.Certificate, c.Key, c.CA, int(handshake.Seconds()))
	switch {
	case c.Leaves != nil:
		var users []string
		for _, name := range c.Leaves.Names {
			users = append(users, fmt.Sprintf("{user: %q, account: %s}", wire.RoleURI(c.Leaves.TrustDomain, wire.RoleBroker, name), AccountMuster))
		}
		return fmt.Sprintf(`
# Brokers of sites.
leafnodes {
  listen: %q
  tls {%s, verify_and_map: true}
  authorization {timeout: %d, users: [%s]}
}
`, c.Leaves.Listen, files, int(handshake.Seconds()), strings.Join(users, ", "))
	case c.Hub != nil:
		var urls []string
		for _, u := range c.Hub.URLs {
			urls = append(urls, fmt.Sprintf("%q", "tls://"+u))
		}
		return fmt.Sprintf(`
# The brokers that have the streams. If no provisioner of the site answers,
# those of elsewhere do.
default_js_domain: {%s: %s}
leafnodes {
  reconnect: "1s"
  remotes: [{urls: [%s], account: %s, tls {%s}}]
}
`, AccountMuster, hubDomain, strings.Join(urls, ", "), AccountMuster, files)
	default:
		return ""
	}
}
