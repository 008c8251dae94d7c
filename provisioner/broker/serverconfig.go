package broker

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"strings"

	"muster/internal/wire"
)

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
	route := url.URL{Scheme: "nats-route", User: url.UserPassword("muster-route", string(c.Keys.Routes)), Host: "host"}
	data := accountsData(&c, servers)
	maps.Copy(data, map[string]any{
		"maxControlLine":  maxControlLine,
		"maxPayload":      maxPayload,
		"pingInterval":    pingInterval,
		"maxPingsOut":     maxPingsOut,
		"maxMemory":       maxMemoryBytes,
		"handshake":       handshake.Seconds(),
		"issuer":          keys.issuer.public,
		"provisioner":     keys.provisioner.public,
		"system":          keys.system.public,
		"systemPublish":   systemPublish,
		"systemSubscribe": systemSubscribe,
		"xkey":            keys.xkey.public,
		"route":           strings.TrimSuffix(route.String(), "host"),
		"password":        string(c.Keys.Routes),
	})
	var b strings.Builder
	err = serverTemplate.Execute(&b, data)
	return b.String(), err
}
