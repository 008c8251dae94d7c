package broker

import (
	"fmt"
	"strings"

	"muster/internal/wire"
)

// hubDomain is JetStream's domain at the hub.
const hubDomain = "hub"

// LeavesConfig accepts the servers of sites as leaves.
type LeavesConfig struct {
	// Listen is host:port for leaves. Required.
	Listen string

	// Names are the leaves' certified names. A leaf can do in [AccountMuster] what a provisioner can. Required.
	Names []string

	// TrustDomain is required.
	TrustDomain string
}

// HubConfig makes a site's server a leaf of the hub, without streams of its own.
type HubConfig struct {
	// URLs are the hub's host:port for leaves. Required.
	URLs []string

	// Site labels tokens and provisioners there. As part of the server's name it tells provisioners where a request
	// comes from. Required.
	Site string
}

func (c ServerConfig) serverName() string {
	if c.Hub == nil {
		return c.Name
	}
	return wire.ServerName(c.Name, c.Hub.Site)
}

// leafText is the block for leaves or hub. The hub checks role and name in a leaf's certificate, so a node's or
// provisioner's is refused. Only AccountMuster crosses.
func (c ServerConfig) leafText() string {
	files := fmt.Sprintf("cert_file: %q, key_file: %q, ca_file: %q, timeout: %d",
		c.Certificate, c.Key, c.CA, int(handshake.Seconds()))
	switch {
	case c.Leaves != nil:
		var users []string
		for _, name := range c.Leaves.Names {
			uri := wire.RoleURI(c.Leaves.TrustDomain, wire.RoleBroker, name)
			users = append(users, fmt.Sprintf("{user: %q, account: %s}", uri, AccountMuster))
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
# provisioners of other sites do.
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
