package broker

import (
	"net/url"

	"github.com/nats-io/nats-server/v2/server"
)

// WebSocketConfig is about nodes that reach the broker as browsers reach a web
// server, by WebSocket (RFC 6455), since a proxy or a firewall lets nothing else
// through.
type WebSocketConfig struct {
	// Listen is the address of one more port, "0.0.0.0:443". Port 0 or -1 takes
	// any free one. Empty is none.
	Listen string

	// Plain takes connections without TLS on it, for behind a proxy that ends
	// TLS. The broker sees no certificate of a node's then, and so no node comes
	// into [AccountFleet] that way; and all connections come from the proxy's
	// address, whatever the proxy says in X-Forwarded-For, which any client can send.
	Plain bool
}

// webSocketOptions sets the options for WebSocket.
func (b *Broker) webSocketOptions(opts *server.WebsocketOpts) {
	if b.cfg.WebSocket.Listen == "" {
		return
	}
	opts.Host, opts.Port = b.webHost, b.webPort
	opts.HandshakeTimeout = handshake
	opts.AuthTimeout = handshake.Seconds()
	opts.SameOrigin = true // no web page of others' has a browser connect here
	if opts.NoTLS = b.cfg.WebSocket.Plain; opts.NoTLS {
		return
	}
	opts.TLSConfig = b.tlsConfig()
}

// WebSocketURL returns where nodes connect by WebSocket, wss://host:port or
// ws://host:port; where that is every address of the machine, with the loopback
// address as host. It is empty unless the broker is running and takes them.
func (b *Broker) WebSocketURL() string {
	s, err := b.running()
	if err != nil || b.cfg.WebSocket.Listen == "" {
		return ""
	}
	u, err := url.Parse(s.WebsocketURL())
	if err != nil {
		return ""
	}
	u.Host = reachable(u.Hostname(), u.Port())
	return u.String()
}
