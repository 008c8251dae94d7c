package broker

import (
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
	// DefaultMaxConnections is near what one process holds with the usual
	// limit of 20,000 file descriptors.
	DefaultMaxConnections = 18_000

	// handshake is how long a client may take for TLS, and again for
	// CONNECT. Short, since each silent connection holds a place; long enough
	// for 5,000 clients to come back at once, which takes 4.6 s on two cores.
	handshake = 5 * time.Second
)

// Config configures [New].
type Config struct {
	// Listen is the address of the one port, "127.0.0.1:4222". Port 0 or -1
	// takes any free one. Required.
	Listen string

	// WebSocket is one more port, for nodes behind a proxy. Optional.
	WebSocket WebSocketConfig

	// StoreDir is JetStream's directory. It is made if it is missing, with
	// mode 0700. Required.
	StoreDir string

	// MaxStoreBytes bounds what JetStream keeps on disk. Set it below the
	// free space: a full disk stops all writes until the broker is started
	// again. Optional; zero is three quarters of the free space.
	MaxStoreBytes int64

	// Unsynced does not bring every write to disk before it is acknowledged: for
	// a store that is thrown away if it is not finished, and synced in the end.
	Unsynced bool

	// Certificate is the broker's, with its chain: leaf, issuing, and the
	// root, so that a client which knows only the root's hash can check it.
	// The leaf's role is broker. [Broker.SetCertificate] replaces it while the
	// broker runs. Without one, the broker serves clients without TLS only.
	Certificate tls.Certificate

	// ClientCAs are the roots of the installation's certificates. Required.
	ClientCAs *x509.CertPool

	// Gate decides about connections. Its Now is the broker's clock.
	Gate GateConfig

	// MaxConnections bounds all connections. Those that hold a token only may be two
	// thirds of it, so that they cannot keep out the fleet. Optional; defaults to
	// [DefaultMaxConnections].
	MaxConnections int

	// Refused is called for each connection that the gate refuses, with what
	// it presented but for the secrets. It must not block. Optional.
	Refused func(ctx context.Context, p Presented, d *Denied)

	// Log receives refused connections, and warnings and errors of the NATS
	// server. Optional; discards by default.
	Log *slog.Logger
}

// splitListen returns host and port of a listen address, with -1 for any port.
func splitListen(listen string) (string, int, error) {
	host, text, err := net.SplitHostPort(listen)
	if err != nil {
		return "", 0, fmt.Errorf("listen address %q: want host:port", listen)
	}
	port, err := strconv.Atoi(text)
	if err != nil || port < -1 || port > 65535 {
		return "", 0, fmt.Errorf("listen address %q: port %q, want -1 to 65535", listen, text)
	}
	if port == 0 {
		port = server.RANDOM_PORT
	}
	return host, port, nil
}
