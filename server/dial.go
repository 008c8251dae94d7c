package server

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/discover"
	"muster/internal/seal"
	"muster/internal/wire"
)

// connectTimeout bounds one connection to one broker, handshakes included. Choria's 2 s are short
// for a broker that a whole fleet comes back to: when 20,000 nodes came at once to three on two slow
// cores, a third of those that were let in waited for more than 5 s, and few for more than 10
// (make chaos).
const connectTimeout = 10 * time.Second

// dialTimeout bounds the way there: who is not there is not worth more. Chosen.
const dialTimeout = 5 * time.Second

// A connection whose other end is gone without a word, as of a machine without power or a
// router that forgets, is noticed by pings that are not answered: after 60 to 90 s. By
// nats.go's own figures it is 4 to 6 minutes, in which the node hears no command. The
// kernel's keepalive sees it no sooner, since it pauses while something that was sent is not
// acknowledged, and a proxy in between answers it. Two pings may be out: a broker that
// stands still for a minute, as in a storm, keeps its nodes, each of whose handshakes
// would cost it a quarter of an hour of pings. 100,000 nodes send 3,300 a second, of 32 µs of CPU at both
// ends together (measured, TLS): a twentieth of a core of a broker that has them all, which
// spares its own pings to those that it hears. Chosen.
const (
	pingEvery   = 30 * time.Second
	maxPingsOut = 2

	// goneAfter is how long it takes at most until it is noticed.
	goneAfter = (maxPingsOut + 1) * pingEvery
)

// lateRefusal is after how long a refusal is not the provisioners': they are quicker, or their answer
// is not waited for. A broker that asks them does so for 5 s (`muster broker config`), and then refuses
// in the same words. Chosen.
const lateRefusal = 4 * time.Second

// errUnanswered means that a broker has refused since nobody told it in time whom to admit.
var errUnanswered = errors.New("nobody told the broker in time whether to admit this node")

// connection is one connection to one broker. It is never reconnected by
// nats.go: the agent resolves the brokers again and makes a new one.
type connection struct {
	*nats.Conn
	broker string // URL
	inbox  string // prefix of the only subjects it may listen on
	closed <-chan struct{}

	session *seal.Session // in which all is sealed; nil: in plain
}

// connect makes a connection to b, through a proxy if c or the environment names
// one; c may be nil. Its name is random, since the broker lets a connection listen
// nowhere but in the inbox of its name.
func (s *Server) connect(ctx context.Context, c *conf, b discover.Broker, options ...nats.Option) (*connection, error) {
	proxy, err := s.proxyFor(c, b)
	if err != nil {
		return nil, fmt.Errorf("broker %s: %w", b.URL, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	name := wire.NewID()
	closed := make(chan struct{})
	d := &dialer{ctx: ctx, resolver: s.cfg.resolver, proxy: proxy}
	options = append([]nats.Option{
		nats.Name(name),
		nats.CustomInboxPrefix(wire.InboxPrefix(name)),
		nats.Timeout(connectTimeout),
		nats.NoReconnect(),
		nats.PingInterval(cmp.Or(s.cfg.ping, pingEvery)),
		nats.MaxPingsOutstanding(maxPingsOut),
		nats.DontRandomize(),
		nats.SkipHostLookup(), // the dialer does it, and can be stopped
		nats.IgnoreDiscoveredServers(),
		nats.SetCustomDialer(d),
		nats.ClosedHandler(func(*nats.Conn) { close(closed) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			s.cfg.Log.WarnContext(ctx, "broker complained", "broker", b.URL, "err", err)
		}),
	}, options...)
	nc, err := nats.Connect(plain(b.URL), append(options, d.takeTLS(b))...)
	if err != nil {
		// nats.go keeps a refused connection to itself.
		if errors.Is(err, nats.ErrNoServers) && d.failure() != nil {
			err = d.failure()
		}
		if isRefusal(err) && d.asked() >= cmp.Or(s.cfg.late, lateRefusal) {
			err = &cause{what: fmt.Errorf("%w: %w", errUnanswered, err), remedy: "start the provisioner that serves this broker, or give it more cores"}
		}
		if over := d.over(); over != nil && !errors.Is(err, over) {
			err = fmt.Errorf("%w: %w", over, err)
		}
		return nil, fmt.Errorf("broker %s: %w", b.URL, err)
	}
	if !d.done() {
		nc.Close()
		return nil, fmt.Errorf("broker %s: %w", b.URL, d.over())
	}
	return &connection{Conn: nc, broker: b.URL, inbox: wire.InboxPrefix(name), closed: closed}, nil
}

// maxGreeting bounds what is read of a connection until it is admitted; chosen, far above the
// longest list of a cluster's servers with TLS and WebSocket around it.
const maxGreeting = 1 << 20

// errGreeting means that what answers is no broker.
var errGreeting = &cause{what: fmt.Errorf("more than %d bytes before it has admitted anybody: no broker sends that", maxGreeting),
	remedy: "something else answers there: check address and port"}

// A greeting is a connection of which little is read until it is admitted: nats.go reads
// a line however long it is, and anybody may sit where a broker is looked for.
type greeting struct {
	net.Conn
	left     int64 // only touched by whoever reads
	admitted atomic.Bool
}

// Read implements [net.Conn].
func (g *greeting) Read(b []byte) (int, error) {
	n, err := g.Conn.Read(b)
	if g.admitted.Load() {
		return n, err
	}
	if g.left -= int64(n); g.left < 0 {
		return 0, errGreeting
	}
	return n, err
}

// dialer dials for nats.go, which takes no context, and ends a handshake when
// the context does.
type dialer struct {
	ctx      context.Context
	resolver *net.Resolver
	proxy    *url.URL // nil for none

	tls *tls.Config // nil for none, and where nats.go finds out that a broker wants it

	mu        sync.Mutex // guards what follows
	err       error
	stop      func() bool
	conn      *greeting
	admission *wire.Admission // over conn
	bound     context.Context // of the connection; nil if there is none
}

// Dial implements [nats.CustomDialer].
func (d *dialer) Dial(_, address string) (net.Conn, error) {
	conn, stop, err := d.dial(d.ctx, address)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err, d.stop = err, stop
	if err != nil {
		return nil, err
	}
	d.conn = &greeting{Conn: conn, left: maxGreeting}
	d.admission = wire.NewAdmission(d.conn)
	if d.tls != nil {
		d.admission = wire.NewAdmission(newSecured(d.conn, d.tls))
	}
	return d.admission, nil
}

// takeTLS has the dialer make TLS in place of nats.go, as it is configured by the options
// before this one. Over a WebSocket, nats.go is to know of none.
func (d *dialer) takeTLS(b discover.Broker) nats.Option {
	return func(o *nats.Options) error {
		if !o.Secure {
			return nil
		}
		d.tls = o.TLSConfig.Clone()
		if d.tls.ServerName == "" {
			d.tls.ServerName = b.Host
		}
		if plain(b.URL) != b.URL {
			o.Secure, o.TLSConfig = false, nil
		}
		return nil
	}
}

// plain returns the URL under which nats.go speaks over a WebSocket whose TLS is not its
// business, and any other as it is.
func plain(url string) string {
	if rest, ok := strings.CutPrefix(url, "wss:"); ok {
		return "ws:" + rest
	}
	return url
}

// SkipTLSHandshake says whether nats.go is to leave TLS to the dialer.
func (d *dialer) SkipTLSHandshake() bool { return d.tls != nil }

// errInClear means that a broker goes on in clear where it is to wait for a handshake.
var errInClear = &cause{what: fmt.Errorf("%w: more in clear than a broker begins with", nats.ErrTLS), remedy: remedyInClear}

// remedyInClear is about what speaks in clear in place of a handshake. A nats-server
// says so that it is full.
const remedyInClear = "the broker is full, or is just being stopped; or what answers there, or on the way, speaks no TLS"

// secured is a connection that is TLS from the first that is written to it: with NATS that is
// after the broker's INFO, with a WebSocket at once. nats.go would do the same, but
// what it is told could not be looked at then; see [wire.Admission].
//
// What nats.go has read by then it keeps, and takes for said over TLS. So it gets no more
// than the one line: what else somebody on the way puts behind that, such as a refusal, would be the
// word of a broker that has proven itself.
type secured struct {
	net.Conn               // only touched by whoever connects, until it is TLS
	config   *tls.Config   // nil once it is TLS; likewise
	clear    *bufio.Reader // of what comes before
}

func newSecured(conn net.Conn, config *tls.Config) *secured {
	return &secured{Conn: conn, config: config, clear: bufio.NewReader(conn)}
}

// Read implements [net.Conn].
func (s *secured) Read(b []byte) (int, error) {
	if s.config == nil {
		return s.Conn.Read(b)
	}
	if _, err := s.clear.Peek(1); err != nil {
		return 0, err
	}
	line, _ := s.clear.Peek(s.clear.Buffered()) // all of it is there
	if end := bytes.IndexByte(line, '\n'); end >= 0 {
		line = line[:end+1]
	}
	return s.clear.Read(b[:min(len(b), len(line))])
}

// Write implements [net.Conn].
func (s *secured) Write(b []byte) (int, error) {
	if s.config != nil {
		if s.clear.Buffered() > 0 {
			return 0, errInClear
		}
		conn := tls.Client(s.Conn, s.config)
		if err := conn.Handshake(); err != nil {
			return 0, fmt.Errorf("%w: %w", nats.ErrTLS, err)
		}
		s.Conn, s.config, s.clear = conn, nil, nil
	}
	return s.Conn.Write(b)
}

// dial dials address, and ends the connection with the context, or when it has taken too
// long, until stop is called.
func (d *dialer) dial(ctx context.Context, address string) (conn net.Conn, stop func() bool, err error) {
	to := address
	if d.proxy != nil {
		to = d.proxy.Host
	}
	hosts, port, err := d.lookup(ctx, to)
	ctx, cancel := context.WithTimeout(ctx, connectTimeout+time.Second) // nats.go's own comes first
	if err == nil {
		dialing, dialed := context.WithTimeout(ctx, dialTimeout)
		conn, err = dialAny(dialing, hosts, port)
		dialed()
	}
	if err != nil {
		cancel()
		if d.proxy != nil {
			err = fmt.Errorf("proxy: %w", err)
		}
		return nil, nil, err
	}
	let := context.AfterFunc(ctx, func() { _ = conn.Close() })
	stop = func() bool {
		defer cancel()
		return let()
	}
	if d.proxy != nil {
		if err := tunnel(ctx, conn, d.proxy, address); err != nil {
			if ctx.Err() != nil {
				err = fmt.Errorf("%w: %w", ctx.Err(), err)
			}
			stop()
			_ = conn.Close()
			return nil, nil, err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.bound = ctx
	return conn, stop, nil
}

// over says why the connection has ended by itself, if it has.
func (d *dialer) over() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bound != nil {
		return d.bound.Err()
	}
	return d.ctx.Err()
}

// asked returns for how long a broker has known who wants to be admitted; zero if none does. What
// came before, as a handshake with one that is busy, says nothing of those whom it asks.
func (d *dialer) asked() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.admission == nil {
		return 0
	}
	return d.admission.Asked()
}

func (d *dialer) failure() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// done lets the connection outlive the context. It reports false if the
// context has ended it already.
func (d *dialer) done() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.conn != nil {
		d.conn.admitted.Store(true)
	}
	return d.stop == nil || d.stop()
}

// provisioningTLS are the options of a connection that presents the token that
// say whether and how it is TLS.
func (s *Server) provisioningTLS(ctx context.Context, t *token, b discover.Broker) []nats.Option {
	if !t.secure && !hasTLSScheme(b.URL) {
		return nil
	}
	if t.limits.CA == "" {
		s.once.unpinned(ctx, s.cfg.Log, b.URL)
		// The node has no authority to verify by; that is what provisioning
		// brings. Choria's nodes do the same.
		return []nats.Option{nats.Secure(&tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true})}
	}
	by := func(now func(time.Time) time.Time) *tls.Config {
		config := pinnedTLS(t.limits.CA, b.Host, now)
		if t.sealed() && strings.HasPrefix(b.URL, "wss:") {
			config.VerifyConnection = orPublic(config.VerifyConnection, b.Host, nil, now)
		}
		return config
	}
	config := by(s.nowFor)
	if own := s.cfg.Now(); s.passed().After(own) && t.signedBy(own) {
		// The saved time may have been wrong, and a machine without a certificate would
		// never find out: every broker's is over by it. A clock that is not set, though,
		// is behind the token.
		config.VerifyConnection = eitherTime(config.VerifyConnection, by(s.ownTimeFor).VerifyConnection)
	}
	return []nats.Option{nats.Secure(config)}
}

// eitherTime accepts what one of two accepts; the error is the first one's.
func eitherTime(saved, own func(tls.ConnectionState) error) func(tls.ConnectionState) error {
	return func(cs tls.ConnectionState) error {
		err := saved(cs)
		if err != nil && own(cs) == nil {
			return nil
		}
		return err
	}
}

// orPublic accepts, besides what pinned accepts, a certificate for host of an
// authority that this machine trusts: a proxy in front of the broker that ends
// TLS, as browsers do their business with. It reads nothing for that, since what
// is sent is sealed to the provisioner; so this is for sealed tokens alone. Roots
// are the machine's if nil.
func orPublic(pinned func(tls.ConnectionState) error, host string, roots *x509.CertPool, now func(time.Time) time.Time) func(tls.ConnectionState) error {
	return func(cs tls.ConnectionState) error {
		err := pinned(cs)
		if err == nil || len(cs.PeerCertificates) == 0 {
			return err
		}
		leaf := cs.PeerCertificates[0]
		_, public := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: newPool(cs.PeerCertificates[1:]), DNSName: host, CurrentTime: now(leaf.NotBefore)})
		if public == nil {
			return nil
		}
		return err
	}
}

// pinnedTLS accepts a broker under the authority with the fingerprint pin, which
// has to be among the certificates that the broker presents.
func pinnedTLS(pin, host string, now func(time.Time) time.Time) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         host,
		InsecureSkipVerify: true, // VerifyConnection does it, by the pin
		VerifyConnection: func(cs tls.ConnectionState) error {
			return verifyPinned(cs.PeerCertificates, pin, host, now)
		},
	}
}

// remedyPin is about an authority that is not the one that the token pins, the
// likely cause first.
const remedyPin = "the token was probably signed with --ca of another authority, or the authority has changed: sign it with this fleet's --ca and replace the file; " +
	"if the token is right, something else answers in the fleet's place"

// remedyKnown is about an authority that a renewal brings and that this node has
// no reason to trust.
const remedyKnown = "if the fleet has a new authority that its former one does not vouch for, have the node enroll again with a token signed with --ca of the new one; " +
	"else something else answers in the fleet's place"

func verifyPinned(chain []*x509.Certificate, pin, host string, now func(time.Time) time.Time) error {
	if len(chain) == 0 {
		return errors.New("broker presents no certificate")
	}
	roots := x509.NewCertPool()
	found := false
	for _, c := range chain {
		if fingerprint(c) == pin {
			roots.AddCert(c)
			found = true
		}
	}
	if !found {
		return &cause{what: fmt.Errorf("broker does not present the authority that the token pins, sha256 %.16s", pin),
			remedy: remedyPin + ", or the broker sends its certificate without the root"}
	}
	leaf := chain[0]
	_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: newPool(chain[1:]), DNSName: host, CurrentTime: now(leaf.NotBefore)})
	if err != nil {
		return err
	}
	trustDomain := ""
	if len(leaf.URIs) == 1 {
		trustDomain = leaf.URIs[0].Host
	}
	return brokerRole(leaf, trustDomain)
}

// brokerRole checks that a verified certificate is a broker's: every node has
// one of the same authority.
func brokerRole(leaf *x509.Certificate, trustDomain string) error {
	role, name, err := wire.RoleOf(leaf, trustDomain)
	if err == nil && role != wire.RoleBroker {
		err = fmt.Errorf("peer is %s %q, want a broker", role, name)
	}
	if err != nil {
		return &cause{what: err, remedy: "something that is no broker answers there: issue the broker a broker certificate"}
	}
	return nil
}

// fleetTLS presents the node's certificate and accepts the fleet's brokers.
func (s *Server) fleetTLS(c *credentials, host string) *tls.Config {
	return &tls.Config{
		// In TLS 1.3 a broker refuses a certificate after it has proven
		// itself; see refused. Every broker of this fleet speaks it.
		MinVersion:         tls.VersionTLS13,
		Certificates:       []tls.Certificate{c.tlsCertificate()},
		ServerName:         host,
		InsecureSkipVerify: true, // VerifyConnection does it, by a time that the broker's certificate proves, too
		VerifyConnection: func(cs tls.ConnectionState) error {
			if len(cs.PeerCertificates) == 0 {
				return errors.New("broker presents no certificate")
			}
			leaf := cs.PeerCertificates[0]
			_, err := leaf.Verify(x509.VerifyOptions{Roots: c.roots, Intermediates: newPool(cs.PeerCertificates[1:]), DNSName: host,
				CurrentTime: s.nowFor(latestStart(c.leaf(), leaf))})
			if err != nil {
				return &tls.CertificateVerificationError{UnverifiedCertificates: cs.PeerCertificates, Err: err}
			}
			return brokerRole(leaf, c.trustDomain)
		},
	}
}

func hasTLSScheme(url string) bool {
	return len(url) > 4 && (url[:4] == "tls:" || url[:4] == "wss:")
}
