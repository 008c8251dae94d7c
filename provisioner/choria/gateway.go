package choria

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/limit"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/events"
	"muster/provisioner/trust"
)

// account equals broker.AccountChoria, which this package does not import.
const account = "CHORIA"

const (
	// maxExchanges bounds the exchanges in progress. Most of an exchange waits for the server's RSA key: 40 to 550 ms.
	maxExchanges = 256

	// shareWait is the time between two looks whether there is room for an exchange.
	shareWait = 50 * time.Millisecond

	// maxWaiting bounds the admitted servers that wait for an exchange. It is more than the account's connections.
	maxWaiting = 8192

	// settle is how long a decision about a connection may take until the broker lists the connection.
	settle = 5 * time.Second

	sweepEvery = 20 * time.Second
)

// Leases are kept by the store.
type Leases interface {
	Lease(ctx context.Context, id wire.Identity) (*provisioner.Lease, trust.Revision, error)
	PutLease(ctx context.Context, l *provisioner.Lease, after trust.Revision) (trust.Revision, error)
	DropLease(ctx context.Context, id wire.Identity, upTo trust.Revision) error
	Leases(ctx context.Context, each func(*provisioner.Lease, trust.Revision) error) error
}

// Config configures [New]. Members are required unless they say what nil means.
type Config struct {
	Conn        *nats.Conn // to the account MUSTER
	Provisioner *provisioner.Provisioner
	Leases      Leases

	// Connected reports whether a connection of the account CHORIA with this user is open.
	Connected func(ctx context.Context, user string) (bool, error)

	// Site is that of the brokers.
	Site jwt.Site

	// Connection is the longest connection of a server.
	Connection time.Duration

	Settings

	Alarms *events.Alarms
	Log    *slog.Logger
	Now    func() time.Time
}

// A Gateway enrolls Choria servers. It is safe for concurrent use.
type Gateway struct {
	cfg      Config
	id       string // of this process in reply subjects
	admitted chan *session
	share    *limit.Shares[netip.Prefix] // of maxExchanges, by address

	mu       sync.Mutex
	sessions map[string]*session // guarded by mu: by user
	calls    map[string]*call    // guarded by mu: by request id
	returned map[string]string   // guarded by mu: settings of the server that came back last

	fleet atomic.Pointer[nats.Conn] // nil without one
	deaf  atomic.Bool               // its broker refuses events

	contestedAt atomic.Pointer[time.Time] // of the newest contested name, nil without one
}

// New returns a Gateway. It starts nothing.
func New(cfg Config) *Gateway {
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	return &Gateway{
		cfg:      cfg,
		id:       wire.NewID(),
		admitted: make(chan *session, maxWaiting),
		share:    limit.NewShares[netip.Prefix](maxExchanges),
		sessions: make(map[string]*session),
		calls:    make(map[string]*call),
	}
}

// A Candidate is a connection that shows a valid token.
type Candidate struct {
	Node    wire.Identity // as it claims
	Token   *jwt.Verified
	Text    wire.Secret // of the token
	Address string      // host, without port
}

// Admit takes the lease of the name for one connection, and returns the connection's user. Of two connections with a
// name only one is admitted, since both would hear what is sent to the name. The error is a *[provisioner.Refusal].
func (g *Gateway) Admit(ctx context.Context, c Candidate) (user string, err error) {
	now := g.cfg.Now()
	s := &session{
		Gateway: g,
		node:    c.Node,
		token:   c.Token,
		text:    c.Text,
		user:    string(c.Node) + "/" + wire.NewID(),
		source:  provisioner.Source{Address: c.Address, Protocol: provisioner.ProtocolChoria},
		version: V1,
		until:   now.Add(g.cfg.Connection),
		started: make(chan struct{}, 1),
	}
	if c.Token.ProtocolV2 {
		s.version = V2
	}
	if err := g.take(ctx, s, now); err != nil {
		return "", err
	}
	g.mu.Lock()
	g.sessions[s.user] = s
	g.mu.Unlock()
	select {
	case g.admitted <- s:
		return s.user, nil
	default:
		g.forget(s)
		return "", &provisioner.Refusal{Code: wire.CodeBusy,
			Err: fmt.Errorf("%d Choria servers are waiting", maxWaiting)}
	}
}

var errSecond = errors.New("a connection with this name is open: two machines may have one name, or the former " +
	"connection has not ended yet")

func (g *Gateway) take(ctx context.Context, s *session, now time.Time) error {
	refuse := func(err error) error {
		return &provisioner.Refusal{Code: wire.CodeBusy, Err: err}
	}
	held, at, err := g.cfg.Leases.Lease(ctx, s.node)
	if err != nil && !errors.Is(err, trust.ErrRecord) { // an unreadable lease is replaced
		return refuse(err)
	}
	next := provisioner.Lease{Schema: provisioner.LeaseSchema, Identity: s.node}
	if held != nil {
		open, err := g.open(ctx, held)
		if err != nil {
			return refuse(err)
		}
		if open {
			g.contested(ctx, s.node)
			return refuse(errSecond)
		}
		next = *held
	}
	next.Connection, next.Site, next.Since, next.Until = s.user, g.cfg.Site, now, s.until
	if s.at, err = g.cfg.Leases.PutLease(ctx, &next, at); err != nil {
		return refuse(err)
	}
	s.lease = &next
	return nil
}

// open reports whether the lease's connection is open. Brokers of another site do not say which they have.
func (g *Gateway) open(ctx context.Context, l *provisioner.Lease) (bool, error) {
	now := g.cfg.Now()
	if ended := !now.Before(l.Until); ended || now.Sub(l.Since) < settle || l.Site != g.cfg.Site {
		return !ended, nil
	}
	return g.cfg.Connected(ctx, l.Connection)
}

func (g *Gateway) forget(s *session) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.sessions, s.user)
}

// Run serves until ctx is done. It owns every goroutine of the package.
func (g *Gateway) Run(ctx context.Context) error {
	replies, err := g.cfg.Conn.Subscribe(replySubject("*", g.id, "*"), g.hearReply)
	if err != nil {
		return fmt.Errorf("subscribe to replies: %w", err)
	}
	defer func() { _ = replies.Unsubscribe() }()
	starts, err := g.cfg.Conn.Subscribe("choria.lifecycle.event.startup.provision_mode_server", g.hearStart)
	if err != nil {
		return fmt.Errorf("subscribe to events: %w", err)
	}
	defer func() { _ = starts.Unsubscribe() }()
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() {
		if err := g.runFleet(ctx); err != nil {
			g.cfg.Log.ErrorContext(ctx, "no connection to the Choria servers' broker", "err", err)
		}
	})
	sweep := time.NewTicker(sweepEvery)
	defer sweep.Stop()
	for {
		select {
		case s := <-g.admitted:
			all.Go(func() { s.run(ctx) })
		case <-sweep.C:
			g.sweep(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

// hearStart lets the exchange begin: the server subscribes before it publishes the event.
func (g *Gateway) hearStart(m *nats.Msg) {
	if s := g.sessionOf(m); s != nil {
		select {
		case s.started <- struct{}{}:
		default: // known
		}
	}
}

// sessionOf returns the session of the connection that sent a message, or nil. What the message says does not matter.
func (g *Gateway) sessionOf(m *nats.Msg) *session {
	sender, err := wire.SenderOf(m.Header, m.Size()-len(m.Subject)-len(m.Reply)-len(m.Data))
	if err != nil || sender.Account != account {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.sessions[sender.User]
	if s != nil && sender.Server != "" {
		s.server = sender.Server
	}
	return s
}
