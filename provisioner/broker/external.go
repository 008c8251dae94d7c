package broker

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/span"
)

// dialTimeout allows for servers that accept connections before they answer.
const dialTimeout = 5 * time.Second

// A connection to a server that hangs is closed after three pings.
const (
	serverPing     = 3 * time.Second
	serverPingsOut = 2
)

// ExternalConfig configures [NewExternal].
type ExternalConfig struct {
	// URLs are nats:// or tls://host:port, comma separated. Required.
	URLs string

	// TLS is optional; without it connections are not encrypted.
	TLS *tls.Config

	// Keys are required, every field of them.
	Keys Keys

	Gate GateConfig

	// Refused is called for each refused connection; p has no secrets. It must not block. Optional.
	Refused func(ctx context.Context, p Presented, d *Denied)

	// Appeared is called when a server is new or returns, because it may have connections to drop. It must not
	// block. Optional.
	Appeared func()

	// Fault returns why this provisioner cannot answer callout requests, which then go to another one. It must not
	// block. Optional.
	Fault func() error

	// Log is optional.
	Log *slog.Logger
}

// External is a NATS server or cluster configured by [ServerConfig.Text]. All provisioners answer its auth callouts.
// It is safe for concurrent use.
type External struct {
	// Set by NewExternal, then read-only.
	cfg     ExternalConfig
	callout *callout

	mu      sync.Mutex
	control *control // guarded by mu; nil unless started
}

// NewExternal returns an error that lists every mistake in cfg.
func NewExternal(cfg ExternalConfig) (*External, error) {
	keys, keysErr := cfg.Keys.pairs()
	gate, gateErr := NewGate(cfg.Gate)
	if err := errors.Join(CheckURLs(cfg.URLs), keysErr, gateErr); err != nil {
		return nil, fmt.Errorf("broker: %w", err)
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	cfg.Gate = gate.cfg // with defaults
	c := &callout{
		gate:    gate,
		keys:    keys,
		refused: cfg.Refused,
		log:     newNATSLog(cfg.Log),
		fault:   cfg.Fault,
		workers: calloutWorkersPerCore * runtime.GOMAXPROCS(0),
	}
	return &External{cfg: cfg, callout: c}, nil
}

// CheckURLs checks [ExternalConfig].URLs.
func CheckURLs(urls string) error {
	for i, text := range strings.Split(urls, ",") {
		u, err := url.Parse(strings.TrimSpace(text))
		switch {
		case err == nil && u.User != nil || strings.Contains(text, "@"): // not quoted: it may hold a password
			return fmt.Errorf("server %d contains a user: put logins into the credentials file", i+1)
		case err != nil || u.Host == "" || u.Scheme != "nats" && u.Scheme != "tls":
			return fmt.Errorf("server %d is %.100q, want nats://host:port or tls://host:port, comma separated",
				i+1, text)
		}
	}
	return nil
}

func allLoopback(urls string) bool {
	for text := range strings.SplitSeq(urls, ",") {
		u, err := url.Parse(strings.TrimSpace(text))
		if err != nil {
			return false
		}
		if ip := net.ParseIP(u.Hostname()); u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return false
		}
	}
	return true
}

// Start retries until a server answers, or ctx is done. The error may wrap [ErrMisconfigured] or [ErrNotSynced].
func (e *External) Start(ctx context.Context) error {
	if e.cfg.TLS == nil && !allLoopback(e.cfg.URLs) {
		e.cfg.Log.WarnContext(ctx, "connections to brokers are not encrypted: use tls:// in broker.url",
			"subject", e.cfg.URLs)
	}
	nc, err := e.dial(ctx, systemClient, e.callout.keys.system.login(), nats.CustomInboxPrefix(controlInbox))
	if err != nil {
		return fmt.Errorf("connect to account %s of %s: %w", AccountSystem, e.cfg.URLs, err)
	}
	c := &control{
		nc:       nc,
		appeared: e.cfg.Appeared,
		page:     connectionsPage,
		servers:  make(map[string]time.Time),
	}
	if err = c.follow(ctx); err == nil {
		err = c.checkServer(ctx)
	}
	if err == nil {
		err = c.checkSync(ctx)
	}
	if err != nil {
		nc.Close()
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.control = c
	return nil
}

func (e *External) running() (*control, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.control == nil {
		return nil, ErrNotRunning
	}
	return e.control, nil
}

// dial retries until ctx is done, except on wrong credentials.
func (e *External) dial(ctx context.Context, name string, opts ...nats.Option) (*nats.Conn, error) {
	all := append(e.options(name), opts...)
	var logged time.Time
	for {
		nc, err := nats.Connect(e.cfg.URLs, all...)
		if err == nil {
			return nc, nil
		}
		if errors.Is(err, nats.ErrAuthorization) {
			return nil, fmt.Errorf("%w: the servers do not know this login: "+
				"configure them as `muster broker config` prints", err)
		}
		if unknown := (x509.UnknownAuthorityError{}); errors.As(err, &unknown) {
			err = fmt.Errorf("%w: no authority under ca or ca.previous in provisioner.yaml signed the broker's "+
				"certificate: make a new one with `muster broker certificate`, or restore ca.previous", err)
		}
		if time.Since(logged) >= WaitingInterval {
			logged = time.Now()
			e.cfg.Log.WarnContext(ctx, "no broker answers, trying again", "subject", e.cfg.URLs, "err",
				fmt.Errorf("%w: %s", err, e.Answers(ctx)))
		}
		if !span.Sleep(ctx, reconnectWait) {
			return nil, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

// WaitingInterval is the time between two lines about servers that a process waits for.
const WaitingInterval = 15 * time.Second

// Answers says which servers of the URLs accept a connection, and which do not.
func (e *External) Answers(ctx context.Context) string {
	servers := strings.Split(e.cfg.URLs, ",")
	found := make([]string, len(servers))
	var all sync.WaitGroup
	for i, text := range servers {
		all.Go(func() {
			_, address, _ := strings.Cut(strings.TrimSpace(text), "://")
			if found[i] = address + " answers"; accepts(ctx, address) != nil {
				found[i] = address + " does not answer"
			}
		})
	}
	all.Wait()
	return strings.Join(found, ", ")
}

func accepts(ctx context.Context, address string) error {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

func (e *External) options(name string) []nats.Option {
	all := []nats.Option{
		nats.Name(name),
		nats.Timeout(dialTimeout),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait), nats.ReconnectJitter(reconnectWait, reconnectWait),
		nats.PingInterval(serverPing), nats.MaxPingsOutstanding(serverPingsOut),
		nats.IgnoreAuthErrorAbort(), // a starting server may refuse at first
		logErrors(e.cfg.Log),
	}
	if e.cfg.TLS != nil {
		all = append(all, nats.Secure(e.cfg.TLS))
	}
	return all
}

// Connect returns an unrestricted connection to [AccountMuster], which reconnects until closed.
func (e *External) Connect(name string, opts ...nats.Option) (*nats.Conn, error) {
	return e.connect(context.Background(), name, opts...)
}

func (e *External) connect(ctx context.Context, name string, opts ...nats.Option) (*nats.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	nc, err := e.dial(ctx, name, append([]nats.Option{e.callout.keys.provisioner.login()}, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("connect to account %s of %s: %w", AccountMuster, e.cfg.URLs, err)
	}
	return nc, nil
}

// Authenticate answers callout requests until ctx is done, then those already received. Call it once the gate has
// its data. ready is called when requests are accepted or Fault prevents that; it may be nil.
func (e *External) Authenticate(ctx context.Context, ready func()) error {
	nc, err := e.connect(ctx, "provisioner callout")
	if err != nil {
		return err
	}
	defer nc.Close()
	return e.callout.run(ctx, nc, ready)
}

// URL returns the configured URLs.
func (e *External) URL() string { return e.cfg.URLs }

// Stop closes the connection of Start. A second call is no error.
func (e *External) Stop(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.control != nil {
		e.control.nc.Close()
		e.control = nil
	}
	return nil
}
