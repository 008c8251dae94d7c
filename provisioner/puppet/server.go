package puppet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"muster/internal/limit"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/ca"
	"muster/provisioner/fleet"
	"muster/provisioner/login"
	"muster/provisioner/operate"
	"muster/provisioner/trust"
)

// Limits of a connection. An agent uses a connection for 4 s after its last request.
const (
	headerTimeout = 10 * time.Second
	readTimeout   = time.Minute
	answerTimeout = 2 * time.Minute
	idleTimeout   = 15 * time.Second
	stopTimeout   = 5 * time.Second

	maxHeaderBytes = 16 << 10
)

// Limits of all connections, shared by address.
const (
	maxConns    = 4096
	maxInFlight = 512
	maxBodies   = 64 << 20 // bytes

	// retryAfter is what agents are told if the server is busy.
	retryAfter = 30
)

// version is that of the puppetserver whose answers these are.
const version = "8.7.0"

// Config configures [New]. Members are required.
type Config struct {
	Provisioner *provisioner.Provisioner
	Login       *login.Verifier
	Orders      *operate.Orders

	// Nodes returns nil until the index exists.
	Nodes func() *fleet.Index
	Runs  Runs

	Settings Settings

	// Bundle has the certificates of the authority and of the root in PEM, which agents get byte for byte. RootCRL is
	// the root's CRL in PEM.
	Bundle, RootCRL []byte

	// Certificate returns the server's certificate. Calls may be concurrent.
	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)

	Log *slog.Logger
	Now func() time.Time
}

// A Server answers Puppet agents and operators of Puppet's authority. Call [New], Open and Run, once each.
type Server struct {
	cfg      Config
	routes   []route
	started  time.Time
	verdicts *limit.Cache[asker, *verdict]
	inFlight *limit.Shares[netip.Prefix]
	bodies   *limit.Shares[netip.Prefix] // bytes
	listener net.Listener                // set by Open
}

// A route serves requests of one method. If its path ends with a slash, it is a prefix, and more of the path follows.
type route struct {
	method string
	path   string
	access access
	body   int64 // the largest body in bytes; 0: none
	serve  func(http.ResponseWriter, *request)
}

// New returns a Server. It opens nothing.
func New(cfg Config) *Server {
	s := &Server{
		cfg:      cfg,
		started:  cfg.Now(),
		verdicts: limit.NewCache[asker, *verdict](maxVerdicts),
		inFlight: limit.NewShares[netip.Prefix](maxInFlight),
		bodies:   limit.NewShares[netip.Prefix](maxBodies),
	}
	for _, routes := range []func() []route{s.authorityRoutes, s.statusRoutes, s.runRoutes} {
		s.routes = append(s.routes, routes()...)
	}
	return s
}

// Open opens the listener. Connections wait for Run.
func (s *Server) Open() (err error) {
	s.listener, err = net.Listen("tcp", s.cfg.Settings.Listen)
	return err
}

// URL is the server's https://host:port, empty before Open.
func (s *Server) URL() string {
	if s.listener == nil {
		return ""
	}
	return "https://" + s.listener.Addr().String()
}

// Run serves until ctx is done, finishes running requests within [stopTimeout], and returns nil. It owns every
// goroutine of the server.
func (s *Server) Run(ctx context.Context) error {
	srv := &http.Server{
		Handler:           http.HandlerFunc(s.serve),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      answerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ConnContext:       withConnection,
		BaseContext:       func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
		ErrorLog:          slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug), // strangers cause these
	}
	l := tls.NewListener(limited{s.listener, limit.NewShares[netip.Prefix](maxConns)}, &tls.Config{
		MinVersion:             tls.VersionTLS12,
		GetCertificate:         s.cfg.Certificate,
		NextProtos:             []string{"http/1.1"},
		ClientAuth:             tls.RequestClientCert, // verified for each request
		SessionTicketsDisabled: true,
		VerifyPeerCertificate:  ca.CheckShown,
	})
	stopped := make(chan struct{})
	defer context.AfterFunc(ctx, func() {
		defer close(stopped)
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		if srv.Shutdown(stop) != nil {
			_ = srv.Close() // requests that exceed stopTimeout
		}
	})()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("puppet: %w", err)
	}
	<-stopped
	return nil
}

// serve finds the route by the path as it was sent: a cleaned path could name another file.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Puppet-Version", version)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	ctx, end := provisioner.Finishing(r.Context()) // a change is finished even if the client has gone
	defer end()
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	s.route(w, &request{Request: r.WithContext(ctx), address: host}) //nolint:contextcheck // it has the context
}

func (s *Server) route(w http.ResponseWriter, q *request) {
	route, err := s.find(q)
	if err == nil {
		err = s.admit(q, route.access)
	}
	if err != nil {
		s.forbid(w, q, err)
		return
	}
	source, size := limit.Source(q.address), int(route.body)
	if q.ContentLength >= 0 {
		size = int(min(q.ContentLength, route.body))
	}
	if size > 0 && !s.bodies.Acquire(source, size) {
		busy(w)
		return
	}
	defer s.bodies.Release(source, size)
	if q.body, err = io.ReadAll(http.MaxBytesReader(w, q.Body, route.body)); err != nil {
		if errors.As(err, new(*http.MaxBytesError)) { // else the client has gone
			_ = s.cfg.Provisioner.Reject(q.Context(), "", wire.CodeTooLarge, fmt.Errorf("%s: %w", q.subject(), err),
				q.source())
		}
		text(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("The body has over %d bytes.", route.body))
		return
	}
	switch {
	case s.inFlight.Acquire(source, 1):
		defer s.inFlight.Release(source, 1)
		route.serve(w, q)
	case route.path == certificates: // see getCertificate
		notFound(w, q.name)
	default:
		busy(w)
	}
}

func (s *Server) find(q *request) (*route, error) {
	path := q.URL.EscapedPath()
	for i := range s.routes {
		known := &s.routes[i]
		rest, found := strings.CutPrefix(path, known.path)
		if q.Method == known.method && found && (rest != "") == strings.HasSuffix(known.path, "/") {
			name, err := url.PathUnescape(rest)
			q.name = name
			return known, err
		}
	}
	return nil, fmt.Errorf("%w: no such call", errForbidden)
}

func (r *request) subject() string {
	return fmt.Sprintf("%.20s %.500s", r.Method, r.URL.EscapedPath())
}

// forbid answers as puppetserver does if no rule admits a request, or that the provisioner cannot judge it now.
func (s *Server) forbid(w http.ResponseWriter, r *request, err error) {
	level := slog.LevelInfo
	if len(r.TLS.PeerCertificates) == 0 {
		level = slog.LevelDebug // strangers could fill the log
	}
	s.cfg.Log.Log(r.Context(), level, "request over Puppet's protocol refused", "subject", r.subject(),
		"source", r.address, "err", err)
	refusal, refused := errors.AsType[*provisioner.Refusal](err)
	if refused && wire.MeaningOf(refusal.Code).Retry || errors.Is(err, trust.ErrRevocationsUnknown) {
		busy(w)
		return
	}
	text(w, http.StatusForbidden, fmt.Sprintf("Forbidden request: %.500s (method :%.20s). Please see the server logs "+
		"for details.", r.URL.EscapedPath(), strings.ToLower(r.Method)))
}

// refuse tells a node the reason.
func refuse(w http.ResponseWriter, err error) {
	r, status := provisioner.RefusalOf(err, wire.CodeUnavailable), http.StatusForbidden
	if wire.MeaningOf(r.Code).Retry {
		w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
		status = http.StatusServiceUnavailable
	}
	text(w, status, reason(r))
}

func reason(r *provisioner.Refusal) string {
	m := r.Message()
	return fmt.Sprintf("%s: %s; %s\n", m.Code, m.Message, m.Remedy)
}

func busy(w http.ResponseWriter) {
	w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
	text(w, http.StatusServiceUnavailable, "The server is busy.")
}

// text answers with plain text.
func text(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "text/plain;charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

// A limited listener shares [maxConns] among addresses.
type limited struct {
	net.Listener
	share *limit.Shares[netip.Prefix]
}

// Accept closes connections beyond the share of their address.
func (l limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		source := limit.Source(c.RemoteAddr().String())
		if l.share.Acquire(source, 1) {
			return &counted{c, sync.OnceFunc(func() { l.share.Release(source, 1) })}, nil
		}
		_ = c.Close() // nothing is owed to it
	}
}

type counted struct {
	net.Conn
	release func()
}

// Close gives the place back.
func (c *counted) Close() error {
	c.release()
	return c.Conn.Close()
}
