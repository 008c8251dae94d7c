package puppet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"muster/provisioner"
	"muster/provisioner/fleet"
	"muster/provisioner/login"
	"muster/provisioner/operate"
)

// Limits of a connection. An agent uses a connection for 4 s after its last request.
const (
	headerTimeout = 10 * time.Second
	readTimeout   = 30 * time.Second
	answerTimeout = time.Minute
	idleTimeout   = 15 * time.Second
	stopTimeout   = 5 * time.Second

	maxHeaderBytes = 16 << 10
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

	// Roots are the authorities named to clients.
	Roots *x509.CertPool

	Log *slog.Logger
	Now func() time.Time
}

// A Server answers Puppet agents and operators of Puppet's authority. Call [New], Open and Run, once each.
type Server struct {
	cfg      Config
	routes   []route
	listener net.Listener // set by Open
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
	s := &Server{cfg: cfg}
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
		BaseContext:       func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
		ErrorLog:          slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug), // strangers cause these
	}
	l := tls.NewListener(s.listener, &tls.Config{
		MinVersion:             tls.VersionTLS12,
		GetCertificate:         s.cfg.Certificate,
		NextProtos:             []string{"http/1.1"},
		ClientAuth:             tls.VerifyClientCertIfGiven,
		ClientCAs:              s.cfg.Roots,
		SessionTicketsDisabled: true,
	})
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	var err error
	select {
	case err = <-served:
	case <-ctx.Done():
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		if srv.Shutdown(stop) != nil {
			_ = srv.Close() // requests that exceed stopTimeout
		}
		err = <-served
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("puppet: %w", err)
}

// serve finds the route by the path as it was sent: a cleaned path could name another file.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Puppet-Version", version)
	path := r.URL.EscapedPath()
	for _, route := range s.routes {
		rest, found := strings.CutPrefix(path, route.path)
		if r.Method != route.method || !found || (rest != "") != strings.HasSuffix(route.path, "/") {
			continue
		}
		name, err := url.PathUnescape(rest)
		q := &request{Request: r, name: name, address: hostOf(r.RemoteAddr)}
		if err == nil {
			err = s.admit(q, route.access)
		}
		if err == nil {
			if q.body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, route.body)); err != nil {
				text(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("The body has over %d bytes.", route.body))
				return
			}
			route.serve(w, q)
			return
		}
		s.cfg.Log.InfoContext(r.Context(), "request of the Puppet edge refused", "method", r.Method, "path", path,
			"source", q.address, "err", err)
		break
	}
	forbid(w, r)
}

// forbid answers as puppetserver does if no rule admits a request.
func forbid(w http.ResponseWriter, r *http.Request) {
	text(w, http.StatusForbidden, fmt.Sprintf("Forbidden request: %.500s (method :%.20s). Please see the server logs "+
		"for details.", r.URL.EscapedPath(), strings.ToLower(r.Method)))
}

// text answers with plain text.
func text(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "text/plain;charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}
