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
	"github.com/nats-io/nkeys"
)

// dialTimeout bounds one try of one server; chosen, servers that restart take
// connections and do not answer for a while.
const dialTimeout = 5 * time.Second

// A server that hangs, or that the network hides, is left for another one after
// at most three of these; chosen, an answer takes milliseconds.
const (
	serverPing     = 3 * time.Second
	serverPingsOut = 2
)

// ExternalConfig configures [NewExternal].
type ExternalConfig struct {
	// URLs are the servers, nats://host:port or tls://host:port, comma separated.
	// One of them that answers is enough: it names the others. Required.
	URLs string

	// TLS is what servers are spoken to with. Optional; without it they are
	// spoken to in clear, which is for a host or a network of one's own. The
	// caller may change what its functions return.
	TLS *tls.Config

	// Keys are the installation's. Required: all of them.
	Keys Keys

	// Gate decides about connections. Required.
	Gate GateConfig

	// Refused is called for each connection that the gate refuses, with what
	// it presented but for the secrets. It must not block. Optional.
	Refused func(ctx context.Context, p Presented, d *Denied)

	// Appeared is called when a server is heard of that was not there, or was
	// silent for so long that it was forgotten: it may have connections that were
	// to be dropped meanwhile. It must not block. Optional.
	Appeared func()

	// Fault returns why this process must leave the questions of brokers to others, nil if it may answer. It must not
	// block. Optional.
	Fault func() error

	// Log receives refused connections. Optional; discards by default.
	Log *slog.Logger
}

// External is a NATS server, or a cluster of them, outside of this process. It
// must be configured as [ServerConfig.Text] says: with the accounts of an embedded
// broker, and asking us about each connection. Any number of provisioners share the
// questions. Make one with [NewExternal]. Its methods are safe for concurrent
// use.
type External struct {
	// Set by NewExternal, then read-only.
	cfg     ExternalConfig
	gate    *Gate
	muster  nats.Option // login to AccountMuster
	system  nats.Option // login to AccountSystem
	callout *callout
	log     *slog.Logger

	mu      sync.Mutex
	control *control // guarded by mu; nil unless started
}

// NewExternal returns an External that has no connection yet, or an error naming
// everything wrong with cfg.
func NewExternal(cfg ExternalConfig) (*External, error) {
	var errs []error
	bad := func(what string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
	}
	bad("url", CheckURLs(cfg.URLs))
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	e := &External{log: cfg.Log}
	c := &callout{
		refused: cfg.Refused,
		log:     newNATSLog(cfg.Log),
		fault:   cfg.Fault,
		workers: calloutWorkersPerCore * runtime.GOMAXPROCS(0),
	}
	var err error
	e.muster, err = login(cfg.Keys.Provisioner)
	bad("credentials", err)
	e.system, err = login(cfg.Keys.System)
	bad("system credentials", err)
	c.issuer, err = seed(cfg.Keys.Issuer, nkeys.PrefixByteAccount, wantIssuer)
	bad("issuer", err)
	c.xkey, err = seed(cfg.Keys.XKey, nkeys.PrefixByteCurve, wantXKey)
	bad("xkey", err)
	e.gate, err = NewGate(cfg.Gate)
	bad("gate", err)
	if len(errs) > 0 {
		return nil, fmt.Errorf("broker: %w", errors.Join(errs...))
	}
	cfg.Gate = e.gate.cfg // with defaults
	c.gate, e.callout, e.cfg = e.gate, c, cfg
	return e, nil
}

// CheckURLs reports why urls cannot be those of servers.
func CheckURLs(urls string) error {
	for i, text := range strings.Split(urls, ",") {
		u, err := url.Parse(strings.TrimSpace(text))
		switch {
		case err == nil && u.User != nil || strings.Contains(text, "@"): // and it is not repeated
			return fmt.Errorf("server %d has a user in it: passwords go into the file of the credentials", i+1)
		case err != nil || u.Host == "" || u.Scheme != "nats" && u.Scheme != "tls":
			return fmt.Errorf("server %d is %.100q, want nats://host:port or tls://host:port, comma separated", i+1, text)
		}
	}
	return nil
}

// onlyHere reports whether all servers are on this machine.
func onlyHere(urls string) bool {
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

// Start connects and returns when some server has answered and all that did sync
// their writes, or when ctx is done: a server may be about to come up. The error
// wraps ctx's, [ErrMisconfigured] or [ErrNotSynced].
func (e *External) Start(ctx context.Context) error {
	if e.cfg.TLS == nil && !onlyHere(e.cfg.URLs) {
		e.log.WarnContext(ctx, "connections to brokers are without TLS, so that what nodes are given in plain mode can be read on the way; say tls:// in broker.url", "subject", e.cfg.URLs)
	}
	nc, err := e.dial(ctx, "provisioner control", e.system, nats.CustomInboxPrefix(controlInbox))
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

// running returns the connection to the servers' own account, or [ErrNotRunning].
func (e *External) running() (*control, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.control == nil {
		return nil, ErrNotRunning
	}
	return e.control, nil
}

// dial connects, over and over until ctx is done. What is wrong with the
// credentials is said at once.
func (e *External) dial(ctx context.Context, name string, opts ...nats.Option) (*nats.Conn, error) {
	all := append(e.options(name), opts...)
	said := ""
	for {
		nc, err := nats.Connect(e.cfg.URLs, all...)
		if err == nil {
			return nc, nil
		}
		if errors.Is(err, nats.ErrAuthorization) {
			return nil, fmt.Errorf("%w: the servers do not know this login: give them the configuration that `muster broker config` prints", err)
		}
		if unknown := (x509.UnknownAuthorityError{}); errors.As(err, &unknown) {
			err = fmt.Errorf("%w: it is of none that provisioner.yaml names under ca or ca.previous: make it another certificate with `muster broker certificate`, or put the lines of ca.previous back", err)
		}
		if err.Error() != said { // once, until it is something else
			said = err.Error()
			e.log.WarnContext(ctx, "no broker answers, trying again", "subject", e.cfg.URLs, "err", err)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(reconnectWait):
		}
	}
}

// options are those of every connection, but for the login.
func (e *External) options(name string) []nats.Option {
	all := []nats.Option{
		nats.Name(name), nats.Timeout(dialTimeout), nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait), nats.ReconnectJitter(reconnectWait, reconnectWait),
		nats.PingInterval(serverPing), nats.MaxPingsOutstanding(serverPingsOut),
		nats.IgnoreAuthErrorAbort(), // a server that is starting may refuse, and be right a moment later
		logErrors(e.log),
	}
	if e.cfg.TLS != nil {
		all = append(all, nats.Secure(e.cfg.TLS))
	}
	return all
}

// Connect returns a connection into [AccountMuster], where it may do everything.
// It reconnects for as long as it is not closed, to whichever server answers.
// The error is one of nats.go's.
func (e *External) Connect(name string, opts ...nats.Option) (*nats.Conn, error) {
	return e.connect(context.Background(), name, opts...)
}

// connect is Connect, for no longer than ctx.
func (e *External) connect(ctx context.Context, name string, opts ...nats.Option) (*nats.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	nc, err := e.dial(ctx, name, append([]nats.Option{e.muster}, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("connect to account %s of %s: %w", AccountMuster, e.cfg.URLs, err)
	}
	return nc, nil
}

// Authenticate answers the questions of the servers about connections until ctx
// is done, over a connection of its own. It then takes no further question,
// answers those in hand and returns nil. Start it once the gate has what it asks
// for: of several provisioners any one is asked. ready, if not nil, is called
// once questions are taken, or this process has found that it must not.
func (e *External) Authenticate(ctx context.Context, ready func()) error {
	nc, err := e.connect(ctx, "provisioner callout")
	if err != nil {
		return err
	}
	defer nc.Close()
	return e.callout.run(ctx, nc, ready)
}

// URL returns where the servers are, as configured.
func (e *External) URL() string { return e.cfg.URLs }

// Stop ends what Start began. The servers go on. Stopping twice, or what never
// ran, is no error.
func (e *External) Stop(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.control != nil {
		e.control.nc.Close()
		e.control = nil
	}
	return nil
}
