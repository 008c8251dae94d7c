package broker

import (
	"github.com/nats-io/nats-server/v2/server"
)

// WebSocketConfig serves nodes behind a proxy or firewall (RFC 6455).
type WebSocketConfig struct {
	// Listen is host:port, such as "0.0.0.0:443"; port 0 or -1 means any free port. Empty means no listener.
	Listen string

	// Plain is for a proxy that terminates TLS. The broker then sees no certificates, so it admits no node to
	// [AccountFleet]. It ignores X-Forwarded-For, which can be forged.
	Plain bool
}

func (b *Broker) webSocketOptions(opts *server.WebsocketOpts) {
	if b.cfg.WebSocket.Listen == "" {
		return
	}
	opts.Host, opts.Port, _ = splitListen(b.cfg.WebSocket.Listen) // checked by New
	opts.HandshakeTimeout = handshake
	opts.AuthTimeout = handshake.Seconds()
	opts.SameOrigin = true // refuses browsers on other origins' pages
	if opts.NoTLS = b.cfg.WebSocket.Plain; opts.NoTLS {
		return
	}
	opts.TLSConfig = b.tlsConfig()
}

// WebSocketURL returns the URL for this machine, or "" without a listener.
func (b *Broker) WebSocketURL() string {
	s, err := b.running()
	if err != nil || b.cfg.WebSocket.Listen == "" {
		return ""
	}
	return reachable.Replace(s.WebsocketURL())
}
