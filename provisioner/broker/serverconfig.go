package broker

import (
	"cmp"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"text/template"

	"muster/internal/wire"
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
	if c.Hub != nil {
		c.Name = wire.ServerName(c.Name, c.Hub.Site)
	}
	route := url.URL{Scheme: "nats-route", User: url.UserPassword(routeUser, string(c.Keys.Routes)), Host: "host"}
	var b strings.Builder
	err = serverText.Execute(&b, map[string]any{
		"c":           c,
		"issuer":      keys.issuer.public,
		"provisioner": keys.provisioner.public,
		"system":      keys.system.public,
		"xkey":        keys.xkey.public,
		"route":       strings.TrimSuffix(route.String(), "host"),
		"password":    string(c.Keys.Routes),
	})
	b.WriteString(accountsConfig(servers, c.MaxConnections, c.Hub == nil, map[string]string{
		AccountMuster: fmt.Sprintf("\n    users: [{nkey: %s}]", keys.provisioner.public),
		AccountSystem: fmt.Sprintf(systemUser, keys.system.public,
			systemPublish[0], systemPublish[1], systemPublish[2],
			systemSubscribe[0], systemSubscribe[1], systemSubscribe[2]),
	}))
	return b.String(), err
}

// serverText admits only brokers as leaves, and connects only AccountMuster.
var serverText = template.Must(template.New("server").Funcs(template.FuncMap{
	"q":      strconv.Quote,
	"broker": func(domain, name string) string { return wire.RoleURI(domain, wire.RoleBroker, name).String() },
}).Parse(fmt.Sprintf(`# Printed by 'muster broker config'. Accounts and permissions are muster's protocol:
# change only names, addresses and limits.
server_name: {{q .c.Name}}
listen: {{q .c.Listen}}
max_connections: {{.c.MaxConnections}}
max_control_line: %[1]d
max_payload: %[2]d
ping_interval: "%[3]s"
ping_max: %[4]d

# nats-server cannot ask for a certificate without requiring it. So nodes without a
# certificate connect without TLS; seal their tokens.
tls {
  cert_file: {{q .c.Certificate}}
  key_file: {{q .c.Key}}
  ca_file: {{q .c.CA}}
  verify: true
  timeout: %[5]d
}
allow_non_tls: true

{{if .c.Hub}}# The streams are at the hub.
{{else}}jetstream {
  store_dir: {{q .c.StoreDir}}
{{- with .c.MaxStoreBytes}}
  max_file_store: {{.}}{{end}}
{{- if .c.Leaves}}
  domain: %[8]s{{end}}
  max_memory_store: %[6]d # no stream is in memory
  # Every acknowledged write is on disk. Provisioners refuse to start otherwise.
  sync_interval: always
}
{{end}}# Provisioners decide about connections. Because some users here have nkeys, the
# server asks every client for a signature, which sealed tokens need.
authorization {
  timeout: %[5]d
  auth_callout {
    issuer: {{.issuer}}
    account: %[7]s
    auth_users: [{{.provisioner}}, {{.system}}]
    xkey: {{.xkey}}
  }
}
{{with .c.Cluster}}
cluster {
  name: {{q .Name}}
  listen: {{q .Listen}}
  routes: [{{range .Routes}}
    {{q (print $.route .)}}{{end}}]
  # An unreachable server is given up after 15 s; until then messages to it are lost.
  ping_interval: "5s"
  ping_max: 2
  authorization {user: %[9]s, password: {{q $.password}}, timeout: %[5]d}
  tls {
    cert_file: {{q $.c.Certificate}}
    key_file: {{q $.c.Key}}
    ca_file: {{q $.c.CA}}
    timeout: %[5]d
  }
}
{{end}}{{with .c.Leaves}}
# Brokers of sites.
leafnodes {
  listen: {{q .Listen}}
  tls {cert_file: {{q $.c.Certificate}}, key_file: {{q $.c.Key}}, ca_file: {{q $.c.CA}}, timeout: %[5]d,
    verify_and_map: true}
  authorization {timeout: %[5]d, users: [{{$domain := .TrustDomain}}{{range .Names}}
    {user: {{q (broker $domain .)}}, account: %[7]s}{{end}}]}
}
{{end}}{{with .c.Hub}}
# The brokers that have the streams. If no provisioner of the site answers,
# provisioners of other sites do.
default_js_domain: {%[7]s: %[8]s}
leafnodes {
  reconnect: "1s"
  remotes: [{
    urls: [{{range .URLs}}
      {{q (print "tls://" .)}}{{end}}]
    account: %[7]s
    tls {cert_file: {{q $.c.Certificate}}, key_file: {{q $.c.Key}}, ca_file: {{q $.c.CA}}, timeout: %[5]d}
  }]
}
{{end}}`, maxControlLine, maxPayload, pingInterval, maxPingsOut, int(handshake.Seconds()), maxMemoryBytes, // 1 to 6
	AccountMuster, hubDomain, routeUser)))

const systemUser = `
    users: [{nkey: %[1]s, permissions: {
      publish: [%[2]q, %[3]q, %[4]q]
      subscribe: [%[5]q, %[6]q, %[7]q]
    }}]
  `
