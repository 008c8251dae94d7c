package broker

import (
	"fmt"
	"strings"

	"muster/internal/wire"
)

const hubDomain = "hub"

// LeavesConfig makes a server the hub of servers at sites.
type LeavesConfig struct {
	// Listen is host:port. Required.
	Listen string

	// Names are the leaves' names in their certificates. A leaf can do what a provisioner can. Required.
	Names []string

	// TrustDomain is the host of SPIFFE IDs. Required.
	TrustDomain string
}

// HubConfig makes a site's server a leaf of the hub.
type HubConfig struct {
	// URLs are host:port. Required.
	URLs []string

	// Site becomes part of the server's name. Required.
	Site string
}

func (c ServerConfig) serverName() string {
	if c.Hub == nil {
		return c.Name
	}
	return wire.ServerName(c.Name, c.Hub.Site)
}

// leafText admits only brokers as leaves, and connects only AccountMuster.
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
