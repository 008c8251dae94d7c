package broker

import (
	"cmp"
	"fmt"
	"net/url"
	"strings"
)

const routeUser = "muster-route"

// ServerConfig configures a nats-server of version 2.12 or later for [External].
type ServerConfig struct {
	// Name is unique in its cluster. Required.
	Name string

	// Listen is host:port for nodes and provisioners. Required.
	Listen string

	// StoreDir is JetStream's directory. Required unless Hub is set.
	StoreDir string

	// MaxStoreBytes defaults to three quarters of the free space.
	MaxStoreBytes int64

	// Certificate, Key and CA are paths. Required.
	Certificate, Key, CA string

	// MaxConnections defaults to [DefaultMaxConnections].
	MaxConnections int

	// Cluster is nil for a single server.
	Cluster *ClusterConfig

	// Leaves is nil for a server without leaves, Hub for a server that is no leaf.
	Leaves *LeavesConfig
	Hub    *HubConfig

	// Keys are those of the provisioners. Required.
	Keys Keys
}

// ClusterConfig is for servers that share streams.
type ClusterConfig struct {
	// Name is the same on all servers. Required.
	Name string

	// Listen is host:port for the other servers. Required.
	Listen string

	// Routes are the host:port of all servers. Required.
	Routes []string
}

// Text returns nats-server's configuration. It contains the cluster's password.
func (c ServerConfig) Text() (string, error) {
	keys, err := c.Keys.pairs()
	if err != nil {
		return "", fmt.Errorf("server configuration: %w", err)
	}
	c.MaxConnections = cmp.Or(c.MaxConnections, DefaultMaxConnections)
	servers := 1
	if c.Cluster != nil {
		servers = max(1, len(c.Cluster.Routes))
	}
	var b strings.Builder
	fmt.Fprintf(&b, serverText, c.serverName(), c.Listen, c.storeText(), "", // 1 to 4
		c.Certificate, c.Key, c.CA, // 5 to 7
		c.MaxConnections, maxControlLine, maxPayload, // 8 to 10
		keys.issuer.public, AccountMuster, keys.provisioner.public, keys.system.public, keys.xkey.public, // 11 to 15
		int(handshake.Seconds()), pingInterval, maxPingsOut) // 16 to 18
	if c.Cluster != nil {
		b.WriteString(c.clusterText())
	}
	b.WriteString(c.leafText())
	b.WriteString(accountsConfig(servers, c.MaxConnections, c.Hub == nil, map[string]string{
		AccountMuster: fmt.Sprintf("\n    users: [{nkey: %s}]", keys.provisioner.public),
		AccountSystem: fmt.Sprintf(systemUser, keys.system.public,
			systemPublish[0], systemPublish[1], systemPublish[2],
			systemSubscribe[0], systemSubscribe[1]),
	}))
	return b.String(), nil
}

const serverText = `# Printed by 'muster broker config'. Accounts and permissions are muster's protocol:
# change only names, addresses and limits.
server_name: %[1]q
listen: %[2]q
max_connections: %[8]d
max_control_line: %[9]d
max_payload: %[10]d
ping_interval: %[17]q
ping_max: %[18]d

# nats-server cannot ask for a certificate without requiring it. So nodes without a
# certificate connect without TLS; seal their tokens.
tls {
  cert_file: %[5]q
  key_file: %[6]q
  ca_file: %[7]q
  verify: true
  timeout: %[16]d
}
allow_non_tls: true

%[3]s
# Provisioners decide about connections. Because some users here have nkeys, the
# server asks every client for a signature, which sealed tokens need.
authorization {
  timeout: %[16]d
  auth_callout {
    issuer: %[11]s
    account: %[12]s
    auth_users: [%[13]s, %[14]s]
    xkey: %[15]s
  }
}
`

const systemUser = `
    users: [{nkey: %[1]s, permissions: {
      publish: [%[2]q, %[3]q, %[4]q]
      subscribe: [%[5]q, %[6]q]
    }}]
  `

func (c ServerConfig) storeText() string {
	if c.Hub != nil {
		return "# The streams are at the hub."
	}
	limit, domain := "", ""
	if c.Leaves != nil {
		domain = "\n  domain: " + hubDomain
	}
	if c.MaxStoreBytes > 0 {
		limit = fmt.Sprintf("\n  max_file_store: %d", c.MaxStoreBytes)
	}
	return fmt.Sprintf(`jetstream {
  store_dir: %q%s%s
  max_memory_store: %d # no stream is in memory
  # Every acknowledged write is on disk. Provisioners refuse to start otherwise.
  sync_interval: always
}`, c.StoreDir, limit, domain, maxMemoryBytes)
}

func (c ServerConfig) clusterText() string {
	var routes []string
	for _, r := range c.Cluster.Routes {
		u := url.URL{Scheme: "nats-route", User: url.UserPassword(routeUser, string(c.Keys.Routes)), Host: r}
		routes = append(routes, fmt.Sprintf("%q", u.String()))
	}
	return fmt.Sprintf(`
cluster {
  name: %[1]q
  listen: %[2]q
  routes: [%[3]s]
  # An unreachable server is given up after 15 s; until then messages to it are lost.
  ping_interval: "5s"
  ping_max: 2
  authorization {user: %[4]s, password: %[5]q, timeout: %[9]d}
  tls {
    cert_file: %[6]q
    key_file: %[7]q
    ca_file: %[8]q
    timeout: %[9]d
  }
}
`, c.Cluster.Name, c.Cluster.Listen, strings.Join(routes, ", "), routeUser, string(c.Keys.Routes),
		c.Certificate, c.Key, c.CA, int(handshake.Seconds()))
}
