package broker

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// Errors of a [Broker]'s life.
var (
	// ErrNotRunning means that the broker has not started, or has stopped.
	ErrNotRunning = errors.New("broker is not running")

	// ErrNoCertificate means that the broker has no certificate yet, so that no
	// client gets TLS. Give it one with [Broker.SetCertificate].
	ErrNoCertificate = errors.New("broker has no certificate")

	// ErrStoreInUse means that another broker, of this or of another process,
	// serves the directory. Stop it, or use its URL.
	ErrStoreInUse = errors.New("store directory is in use by another broker")
)

// reconnectWait is between two tries of a connection from inside the process:
// there is no network to spare.
const reconnectWait = 100 * time.Millisecond

// A Broker is a NATS server in this process. Make one with [New]. Its methods
// are safe for concurrent use.
type Broker struct {
	// Set by New, then read-only.
	cfg     Config
	host    string
	port    int // -1 takes any; the one that was taken, once started: touched by Start only
	webHost string
	webPort int // like port, of WebSocket; 0 is none
	gate    *Gate
	log     *natsLog

	// certificate is what new connections are shown; see SetCertificate.
	certificate atomic.Pointer[tls.Certificate]

	// rechecks counts the calls of Recheck; see authentication.admit.
	rechecks atomic.Uint64

	mu     sync.Mutex         // guards the rest
	server *runningServer     // nil unless running
	cancel context.CancelFunc // ends what the gate still waits for
}

// New returns a Broker that is not yet running, or an error naming everything
// wrong with cfg. It starts no goroutine and touches no file.
func New(cfg Config) (*Broker, error) {
	var errs []error
	bad := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	host, port, err := splitListen(cfg.Listen)
	bad(err)
	var webHost string
	var webPort int
	if cfg.WebSocket.Listen != "" {
		if webHost, webPort, err = splitListen(cfg.WebSocket.Listen); err != nil {
			bad(fmt.Errorf("WebSocket: %w", err))
		}
	}
	cfg.MaxConnections = cmp.Or(cfg.MaxConnections, DefaultMaxConnections)
	gate, err := NewGate(cfg.Gate)
	bad(err)
	if len(errs) > 0 {
		return nil, fmt.Errorf("broker: %w", errors.Join(errs...))
	}
	cfg.Gate = gate.cfg // with defaults
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	b := &Broker{
		cfg:     cfg,
		host:    host,
		port:    port,
		webHost: webHost,
		webPort: webPort,
		gate:    gate,
		log:     newNATSLog(cfg.Log),
	}
	b.certificate.Store(&cfg.Certificate)
	return b, nil
}

// SetCertificate shows another certificate to connections from now on; those
// that exist go on. It may be called at any time.
func (b *Broker) SetCertificate(c tls.Certificate) { b.certificate.Store(&c) }

// URL returns where the broker listens, nats://host:port; where that is every
// address of the machine, with the loopback address as host. It is empty unless
// the broker is running.
func (b *Broker) URL() string {
	s, err := b.running()
	if err != nil {
		return ""
	}
	addr, ok := s.Addr().(*net.TCPAddr)
	if !ok {
		return ""
	}
	host := addr.IP.String()
	if addr.IP.IsUnspecified() {
		host = b.host
	}
	return "nats://" + reachable(host, strconv.Itoa(addr.Port))
}

// reachable returns the address of a listener as this machine reaches it.
func reachable(host, port string) string {
	switch host {
	case "", "0.0.0.0":
		host = "127.0.0.1"
	case "::":
		host = "::1"
	}
	return net.JoinHostPort(host, port)
}

// Connect returns a connection from inside the process into [AccountMuster],
// where it may do everything. It reconnects for as long as it is not closed; close it
// before [Broker.Stop]. The error is [ErrNotRunning] or one of nats.go.
func (b *Broker) Connect(name string, opts ...nats.Option) (*nats.Conn, error) {
	s, err := b.running()
	if err != nil {
		return nil, err
	}
	all := append([]nats.Option{
		nats.InProcessServer(s),
		nats.Name(name),
		nats.Timeout(dialTimeout), // the library's 2 s are over where the machine stands still for a moment
		nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait), nats.ReconnectJitter(0, 0),
		logErrors(b.cfg.Log),
	}, opts...)
	nc, err := nats.Connect("", all...)
	if err != nil {
		return nil, fmt.Errorf("connect to own broker: %w", err)
	}
	return nc, nil
}

// running returns the server, or [ErrNotRunning].
func (b *Broker) running() (*server.Server, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.server == nil {
		return nil, ErrNotRunning
	}
	return b.server.Server, nil
}
