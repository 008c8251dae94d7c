// Package link connects a node to a broker and sends requests to provisioners over the connection: names, TLS,
// sealing, and explanations of failures.
package link

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/discover"
	"muster/internal/seal"
	"muster/internal/wire"
	"muster/server/advice"
)

// connectTimeout bounds one connection with its handshakes; dialTimeout bounds its TCP connect. When 20,000 nodes
// returned at once to three brokers on two slow cores, few waited longer than 10 s (make chaos).
const (
	connectTimeout = 10 * time.Second
	dialTimeout    = 5 * time.Second
)

// These detect a dead connection after 60 to 90 s. With nats.go's defaults, the node would miss commands for 4 to 6
// minutes. Two outstanding pings let a broker stall for a minute without losing its nodes.
const (
	pingEvery   = 30 * time.Second
	maxPingsOut = 2
)

// lateRefusal is the time after which a refusal is not a provisioner's decision: a broker waits 5 s for one (`muster
// broker config`), then refuses with the same text.
const lateRefusal = 4 * time.Second

// ErrUnanswered means that a broker refused the node because no provisioner answered the broker in time.
var ErrUnanswered = errors.New("no provisioner answered the broker in time whether to admit this node")

// Config configures [New].
type Config struct {
	Resolver *net.Resolver // nil: the system's
	Timeout  time.Duration
	Ping     time.Duration // interval of pings; default 30 s
	Late     time.Duration // see lateRefusal; default 4 s
	Log      *slog.Logger
	Step     func(name string)
}

// A Dialer connects to brokers.
type Dialer struct{ cfg Config }

// New returns a dialer. It opens no connection.
func New(cfg Config) *Dialer {
	cfg.Ping = cmp.Or(cfg.Ping, pingEvery)
	cfg.Late = cmp.Or(cfg.Late, lateRefusal)
	return &Dialer{cfg}
}

// Brokers resolves the brokers; nothing is cached.
func (d *Dialer) Brokers(ctx context.Context, urls []string, srv string, secure bool) ([]discover.Broker, error) {
	return discover.Config{URLs: urls, SRVDomain: srv, Secure: secure, Resolver: d.cfg.Resolver}.Brokers(ctx)
}

// Auth is how a node authenticates to a broker.
type Auth struct {
	TLS     *tls.Config   // nil: no TLS
	Options []nats.Option // present the token; none with a certificate
	Session *seal.Session // seals requests; nil: plain
}

// A Conn is one connection to one broker. It never reconnects: the agent resolves the brokers again.
type Conn struct {
	*nats.Conn
	Broker string
	Closed <-chan struct{} // closed with the connection

	// Private means that no listener on the network can read requests.
	Private bool

	dialer  *Dialer
	inbox   string // the broker allows subscriptions only below it
	session *seal.Session
}

// End closes the connection and waits until it is closed.
func (c *Conn) End() {
	c.Close()
	<-c.Closed
}

// Connect connects to b under a random name, which determines the connection's inbox.
func (d *Dialer) Connect(ctx context.Context, b discover.Broker, p Auth) (*Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout+time.Second)
	defer cancel()
	dialer := &brokerDialer{ctx: ctx, net: net.Dialer{Timeout: dialTimeout, Resolver: d.cfg.Resolver}}
	if p.TLS != nil {
		dialer.tls = p.TLS.Clone()
		dialer.tls.ServerName = cmp.Or(dialer.tls.ServerName, b.Host)
	}
	name := wire.NewID()
	closed := make(chan struct{})
	options := append([]nats.Option{
		nats.Name(name),
		nats.CustomInboxPrefix(wire.InboxPrefix(name)),
		nats.Timeout(connectTimeout),
		nats.NoReconnect(),
		nats.PingInterval(d.cfg.Ping),
		nats.MaxPingsOutstanding(maxPingsOut),
		nats.DontRandomize(),
		nats.SkipHostLookup(), // the dialer does it, within ctx
		nats.IgnoreDiscoveredServers(),
		nats.SetCustomDialer(dialer),
		nats.ClosedHandler(func(*nats.Conn) { close(closed) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			d.cfg.Log.WarnContext(ctx, "broker reported an error", "broker", b.URL, "err", err)
		}),
	}, p.Options...)
	if p.TLS != nil && withoutTLS(b.URL) == b.URL { // nats.go must see a WebSocket without TLS
		options = append(options, nats.Secure(p.TLS))
	}
	nc, err := nats.Connect(withoutTLS(b.URL), options...)
	if err == nil && !dialer.release() {
		nc.Close()
		err = ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("broker %s: %w", b.URL, dialer.explain(err, d.cfg.Late))
	}
	return &Conn{
		Conn:    nc,
		Broker:  b.URL,
		Closed:  closed,
		dialer:  d,
		inbox:   wire.InboxPrefix(name),
		session: p.Session,
		Private: p.TLS != nil || p.Session != nil,
	}, nil
}

func (w *brokerDialer) explain(err error, late time.Duration) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil && errors.Is(err, nats.ErrNoServers) { // nats.go hides the dialer's error
		err = w.err
	}
	if over := w.ctx.Err(); over != nil && !errors.Is(err, over) {
		err = fmt.Errorf("%w: %w", over, err)
	}
	if w.admission != nil && isRefusal(err) && w.admission.SinceConnect() >= late {
		return advice.New(fmt.Errorf("%w: %w", ErrUnanswered, err),
			"start the provisioner that serves this broker, or give it more cores")
	}
	return err
}
