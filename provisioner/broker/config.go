package broker

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Defaults and limits of [Config].
const (
	// DefaultMaxConnections fits the usual limit of 20,000 file descriptors.
	DefaultMaxConnections = 18_000

	// handshake bounds the wait for the first byte and the TLS handshake, and then CONNECT. On two cores, 5,000 clients
	// at once need 4.6 s.
	handshake = 5 * time.Second
)

// Config configures [New].
type Config struct {
	// Listen is host:port; port 0 or -1 means any free port. Required.
	Listen string

	// WebSocket is optional.
	WebSocket WebSocketConfig

	// StoreDir is made if missing. Required.
	StoreDir string

	// MaxStoreBytes must be below the free space, since a full disk stops all writes until a restart. Zero means
	// three quarters of the free space.
	MaxStoreBytes int64

	// Unsynced acknowledges writes before they are on disk, for a store that is synced at the end.
	Unsynced bool

	// Certificate is called for each connection, see [tls.Config]. Certificates include the root, for clients that
	// know only the root's hash. Nil: without TLS.
	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)

	// ClientCAs are the authorities of client certificates. Required.
	ClientCAs *x509.CertPool

	Gate GateConfig

	// MaxConnections defaults to [DefaultMaxConnections].
	MaxConnections int

	// Refused is called for each refused connection; p has no secrets. It must not block. Optional.
	Refused func(ctx context.Context, p Presented, d *Denied)

	// Log is optional.
	Log *slog.Logger
}

func splitListen(listen string) (string, int, error) {
	host, text, err := net.SplitHostPort(listen)
	if err != nil {
		return "", 0, fmt.Errorf("listen address %q: want host:port", listen)
	}
	port, err := strconv.Atoi(text)
	if err != nil || port < -1 || port > 65535 {
		return "", 0, fmt.Errorf("listen address %q: port %q, want -1 to 65535", listen, text)
	}
	return host, cmp.Or(port, server.RANDOM_PORT), nil
}

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
