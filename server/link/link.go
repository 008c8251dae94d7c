// Package link connects a node to a broker of its fleet, and asks provisioners
// over the connection: names, TLS, sealed messages, and what it
// means if one of them fails.
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

// connectTimeout bounds one connection to one broker, handshakes included, and
// dialTimeout the way there. Choria's 2 s are short for a broker that a whole
// fleet comes back to: of 20,000 nodes at once at three brokers on two slow
// cores a third waited for more than 5 s, few for more than 10 (make chaos).
const (
	connectTimeout = 10 * time.Second
	dialTimeout    = 5 * time.Second
)

// A connection whose other end is gone without a word is noticed after 60 to
// 90 s; with nats.go's own figures it would be 4 to 6 minutes, in which the node
// hears no command. Two pings may be out, so that a broker that stands still for
// a minute keeps its nodes.
const (
	pingEvery   = 30 * time.Second
	maxPingsOut = 2
)

// lateRefusal is after how long a refusal is not the provisioners' word: a
// broker asks them for 5 s (`muster broker config`), and then refuses in the
// same words.
const lateRefusal = 4 * time.Second

// ErrUnanswered means that a broker refused the node because no provisioner
// told it in time whether to admit it.
var ErrUnanswered = errors.New("no provisioner told the broker in time whether to admit this node")

// Config configures [New].
type Config struct {
	Resolvers []string      // name servers to ask for SRV records; default: the system's
	Resolver  *net.Resolver // of brokers' names; default: the system's
	Timeout   time.Duration // how long an answer is waited for
	Ping      time.Duration // how often the broker is asked whether it is there; default 30 s
	Late      time.Duration // after how long a refusal is not the provisioners'; default 4 s
	Log       *slog.Logger
	Step      func(name string) // called after each request that was sent
}

// A Dialer makes connections.
type Dialer struct{ cfg Config }

// New returns a Dialer.
func New(cfg Config) *Dialer {
	cfg.Ping = cmp.Or(cfg.Ping, pingEvery)
	cfg.Late = cmp.Or(cfg.Late, lateRefusal)
	return &Dialer{cfg}
}

// Brokers resolves where to connect, anew each time.
func (d *Dialer) Brokers(ctx context.Context, urls []string, srv string, secure bool) ([]discover.Broker, error) {
	r, err := discover.New(discover.Config{URLs: urls, SRVDomain: srv, Secure: secure, Resolvers: d.cfg.Resolvers})
	if err != nil {
		return nil, err
	}
	return r.Brokers(ctx)
}

// Presented is what a node shows to a broker.
type Presented struct {
	TLS     *tls.Config   // nil: plain
	Options []nats.Option // its token, if it has no certificate
	Session *seal.Session // in which all is sealed; nil: in plain
}

// A Conn is one connection to one broker. It is never reconnected by nats.go:
// the agent resolves the brokers again and makes a new one.
type Conn struct {
	*nats.Conn
	Broker string          // URL
	Closed <-chan struct{} // closed once the connection is

	dialer  *Dialer
	inbox   string // prefix of the only subjects that it may listen on
	session *seal.Session
}

// End closes the connection and waits until it is.
func (c *Conn) End() {
	c.Close()
	<-c.Closed
}

// Connect makes a connection to b. Its name is random, since the broker lets a
// connection listen nowhere but in the inbox of its name.
func (d *Dialer) Connect(ctx context.Context, b discover.Broker, p Presented) (*Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout+time.Second) // nats.go's own comes first
	defer cancel()
	way := &way{ctx: ctx, net: net.Dialer{Timeout: dialTimeout, Resolver: d.cfg.Resolver}}
	if p.TLS != nil {
		way.tls = p.TLS.Clone()
		way.tls.ServerName = cmp.Or(way.tls.ServerName, b.Host)
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
		nats.SkipHostLookup(), // the dialer does it, and can be stopped
		nats.IgnoreDiscoveredServers(),
		nats.SetCustomDialer(way),
		nats.ClosedHandler(func(*nats.Conn) { close(closed) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			d.cfg.Log.WarnContext(ctx, "broker complained", "broker", b.URL, "err", err)
		}),
	}, p.Options...)
	if p.TLS != nil && withoutTLS(b.URL) == b.URL { // over a WebSocket nats.go is to know of none
		options = append(options, nats.Secure(p.TLS))
	}
	nc, err := nats.Connect(withoutTLS(b.URL), options...)
	if err == nil && !way.release() {
		nc.Close()
		err = ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("broker %s: %w", b.URL, way.explain(err, d.cfg.Late))
	}
	return &Conn{
		Conn:    nc,
		Broker:  b.URL,
		Closed:  closed,
		dialer:  d,
		inbox:   wire.InboxPrefix(name),
		session: p.Session,
	}, nil
}

// explain says of an error of nats.go what the way to the broker knows.
func (w *way) explain(err error, late time.Duration) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil && errors.Is(err, nats.ErrNoServers) { // nats.go keeps a refused connection to itself
		err = w.err
	}
	if over := w.ctx.Err(); over != nil && !errors.Is(err, over) {
		err = fmt.Errorf("%w: %w", over, err)
	}
	if w.admission != nil && isRefusal(err) && w.admission.Asked() >= late {
		return advice.New(fmt.Errorf("%w: %w", ErrUnanswered, err),
			"start the provisioner that serves this broker, or give it more cores")
	}
	return err
}
