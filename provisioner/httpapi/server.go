package httpapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sync/errgroup"

	"muster/internal/cli"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/ca"
	"muster/provisioner/login"
	"muster/provisioner/operate"
	"muster/provisioner/trust"
)

// Limits of a request. The largest body is an imported allow-list. Listing a large store takes seconds.
const (
	maxBodyBytes  = 4 << 20
	readTimeout   = 10 * time.Second
	answerTimeout = 5 * time.Minute
	stopTimeout   = 5 * time.Second
)

// A Server answers operators. Call [New], Open and Run, once each.
type Server struct {
	cfg    Config
	mux    *http.ServeMux
	routes map[string]access // by pattern
	socket net.Listener      // set by Open
	https  net.Listener      // set by Open if configured

	stopping context.Context // ends streams before Run returns
	stop     context.CancelFunc
}

// Open opens the socket and, if configured, the HTTPS listener. Connections wait for Run.
func (s *Server) Open() (err error) {
	if s.cfg.HTTPS != nil {
		if s.https, err = net.Listen("tcp", s.cfg.HTTPS.Listen); err != nil {
			return fmt.Errorf("HTTPS: %w", err)
		}
	}
	if s.socket, err = listenUnix(s.cfg.Socket); err != nil && s.https != nil {
		return errors.Join(err, s.https.Close())
	}
	return err
}

// URL is the server's https://host:port, empty before Open and without HTTPS.
func (s *Server) URL() string {
	if s.https == nil {
		return ""
	}
	return "https://" + s.https.Addr().String()
}

// Run serves until ctx is done, finishes running requests within [stopTimeout], and returns nil. It owns every
// goroutine of the server.
func (s *Server) Run(ctx context.Context) error {
	defer s.stop()
	defer context.AfterFunc(ctx, s.stop)()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		srv := s.server(ctx)
		srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
			return withLogin(ctx, caller{Self: Self{By: peerName(c), Role: trust.RoleAdmin}})
		}
		err := serve(ctx, srv, s.socket)
		_ = os.Remove(s.cfg.Socket) // replaced at the next start
		if err != nil {
			return fmt.Errorf("control socket: %w", err)
		}
		return nil
	})
	if s.https != nil {
		g.Go(func() error {
			srv := s.server(ctx)
			s.cfg.HTTPS.harden(srv)
			if err := serve(ctx, srv, tls.NewListener(s.https, srv.TLSConfig)); err != nil {
				return fmt.Errorf("HTTPS: %w", err)
			}
			return nil
		})
	}
	return g.Wait()
}

func (s *Server) server(ctx context.Context) *http.Server {
	return &http.Server{
		Handler:      s.mux,
		ReadTimeout:  readTimeout,
		WriteTimeout: answerTimeout,
		BaseContext:  func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
		ErrorLog:     slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug), // strangers cause these
	}
}

// serve serves l until ctx is done, then finishes running requests.
func serve(ctx context.Context, srv *http.Server, l net.Listener) (err error) {
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
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
	return err
}

// unrouted passes HTTPS requests outside /v1/ to the console, and refuses the rest.
func (s *Server) unrouted(w http.ResponseWriter, r *http.Request) {
	other := !slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodPost}, r.Method)
	if s.cfg.Console != nil && r.TLS != nil && !other && !strings.HasPrefix(r.URL.Path, "/v1/") {
		s.cfg.Console.ServeHTTP(w, r)
		return
	}
	path := strings.Trim(fmt.Sprintf("%.200q", r.URL.Path), `"`)
	p := &Problem{
		Detail: fmt.Sprintf("there is no %.20s %s", r.Method, path),
		Status: http.StatusNotFound,
		Remedy: "/openapi.json lists the routes",
	}
	if other {
		p.Status = http.StatusMethodNotAllowed
	}
	p.write(w)
}

func get[A any](s *Server, need access, path string, answer func(*http.Request) (A, error)) {
	s.handle("GET "+path, need, func(w http.ResponseWriter, r *http.Request) {
		a, err := answer(r)
		s.answer(w, r, a, err)
	})
}

// getList serves a list as a member that is named as the route ends: {"tokens": []}.
func getList[T any](s *Server, need access, route string, list func(*http.Request) ([]T, error)) {
	get(s, need, route, func(r *http.Request) (map[string][]T, error) {
		all, err := list(r)
		return map[string][]T{path.Base(route): append([]T{}, all...)}, err
	})
}

// change serves an order, with its reason in the cause.
func change[Q, A any](s *Server, need access, path string,
	do func(*http.Request, *Q, trust.Cause) (A, error),
) {
	need.changes = true
	post(s, need, path, do)
}

// post serves POST requests, which are finished even if the caller disconnects.
func post[Q, A any](s *Server, need access, path string, do func(*http.Request, *Q, trust.Cause) (A, error)) {
	s.handle("POST "+path, need, func(w http.ResponseWriter, r *http.Request) {
		var q Q
		cause, err := decode(w, r, need, &q)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		finishing, end := provisioner.Finishing(r.Context())
		defer end()
		a, err := do(r.WithContext(finishing), &q, cause)
		s.answer(w, r, a, err)
	})
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request, a any, err error) {
	if err != nil {
		s.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", typeJSON)
	writeJSON(w, a)
}

// writeJSON ends an answer. If it fails, the client has gone.
func writeJSON(w io.Writer, a any) {
	if b, err := json.Marshal(a); err == nil {
		_, _ = w.Write(append(cli.PrintableJSON(b), '\n'))
	}
}

// fail answers with an error and logs it, at debug level if the caller is unknown and could fill the log.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	level := slog.LevelInfo
	if _, known := loginOf(r.Context()); !known {
		level = slog.LevelDebug
	}
	s.cfg.Log.Log(r.Context(), level, "operator's request failed", "subject", subject(r), "by", by(r.Context()), "err",
		err)
	ProblemOf(err).write(w)
}

func subject(r *http.Request) string { return fmt.Sprintf("%.20s %.200s", r.Method, r.URL.Path) }

// none is the answer to an order without a result.
type none struct{}

// decode reads a request's body into q, and returns the caller with the reason, checked for changes.
func decode(w http.ResponseWriter, r *http.Request, need access, q any) (trust.Cause, error) {
	cause := trust.Cause{By: by(r.Context())}
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBodyBytes))
	if err == nil && len(b) > 0 {
		err = wire.DecodeStrict(b, q)
	}
	if err != nil {
		p := badRequest(fmt.Errorf("request body: %w", err))
		if json.Valid(b) { // perhaps of a later version
			p.Remedy = "/openapi.json lists what this provisioner accepts; a later version of muster needs " +
				"a provisioner of that version"
		}
		return cause, p
	}
	var reason Reason
	_ = json.Unmarshal(b, &reason) // DecodeStrict has checked it
	cause.Why = reason.Why
	if need.changes {
		err = checkReason(r, cause)
	}
	return cause, err
}

// Config configures [New].
type Config struct {
	// Socket is the path of the Unix socket. An existing one is replaced. Required.
	Socket string

	operate.Edge

	// Backup calls started with the approximate number of messages, and then writes a backup to w. by is the operator.
	// Required.
	Backup func(ctx context.Context, by string, started func(messages uint64), w io.Writer) error

	// Inputs calls started with the number of batches, and then writes the decisions of the last age: one
	// [policies.Recording] in JSON on each line, a blank line after each batch. Required.
	Inputs func(ctx context.Context, age time.Duration, started func(batches uint64), w io.Writer) error

	Components Components   // required
	Metrics    http.Handler // serves GET /metrics; required

	// Ready returns the parts that keep this provisioner from serving, by name. Callers need no authentication, so only
	// names are shown. Required.
	Ready func(context.Context) map[string]error

	// Console serves HTTPS requests outside /v1/; nil: they get 404.
	Console http.Handler

	// Foreman serves /puppet/ca and the paths below, with a login of its own; nil: they get 404.
	Foreman http.Handler

	// HTTPS configures the listener for other machines; nil: none.
	HTTPS *HTTPSConfig
}

// New returns a Server. It opens nothing.
func New(cfg Config) *Server {
	s := &Server{cfg: cfg, mux: http.NewServeMux(), routes: make(map[string]access)}
	s.stopping, s.stop = context.WithCancel(context.Background())
	for _, routes := range []func(*Server){
		tokenRoutes, signerRoutes, nodeRoutes, orderRoutes, waitingRoutes, allowRoutes, certificateRoutes,
		settingRoutes, componentRoutes, sessionRoutes,
		statusRoutes, operatorRoutes, backupRoutes, inputsRoutes, policyRoutes, eventRoutes, webhookRoutes,
		healthRoutes, downloadRoutes, openAPIRoute,
	} {
		routes(s)
	}
	s.mux.HandleFunc("/", s.unrouted)
	return s
}

// document is written by hand. Tests compare it with the routes and their answers.
//
//go:embed openapi.yaml
var document []byte

// OpenAPI returns the description of the API in JSON. Do not modify it.
var OpenAPI = sync.OnceValues(func() ([]byte, error) {
	var d any
	if err := yaml.Unmarshal(document, &d); err != nil {
		return nil, err
	}
	return json.Marshal(d)
})

func openAPIRoute(s *Server) {
	s.handle("GET /openapi.json", access{}, func(w http.ResponseWriter, r *http.Request) {
		b, err := OpenAPI()
		if err != nil {
			s.fail(w, r, err)
			return
		}
		w.Header().Set("Content-Type", typeJSON)
		_, _ = w.Write(b) // the client has gone
	})
}

// Limits for the network.
const (
	maxStreams     = 32 // per HTTP/2 connection
	maxHeaderBytes = 16 << 10
	idleTimeout    = 2 * time.Minute
	stalledTimeout = 30 * time.Second // for an HTTP/2 client that reads nothing
)

// HTTPSConfig configures the listener for operators on other machines.
type HTTPSConfig struct {
	// Listen is host:port. Required.
	Listen string

	// Certificate returns the server's certificate. Calls may be concurrent. Required.
	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)

	// Roots are the authorities named to clients. Each request's certificate is verified independently. Optional.
	Roots *x509.CertPool
}

// harden limits a server that other machines can reach. A token may replace a client certificate.
func (c *HTTPSConfig) harden(srv *http.Server) {
	kept := &places{held: make(map[net.Conn]*place)}
	srv.ConnState = kept.follow
	srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return login.WithNotice(ctx, func(operator string) { kept.keep(c, operator) })
	}
	srv.ReadHeaderTimeout, srv.IdleTimeout, srv.MaxHeaderBytes = readTimeout, idleTimeout, maxHeaderBytes
	srv.TLSConfig = &tls.Config{
		MinVersion:             tls.VersionTLS13,
		GetCertificate:         c.Certificate,
		NextProtos:             []string{"h2", "http/1.1"},
		ClientAuth:             tls.RequestClientCert,
		VerifyPeerCertificate:  ca.CheckShown,
		ClientCAs:              c.Roots,
		SessionTicketsDisabled: true,
	}
	srv.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: maxStreams, WriteByteTimeout: stalledTimeout}
	// A browser adds an operator's certificate to requests from the pages of any site.
	guarded := http.NewCrossOriginProtection()
	guarded.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		(&Problem{Detail: "cross-site request refused", Status: http.StatusForbidden}).write(w)
	}))
	inner := guarded.Handler(srv.Handler)
	srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Strict-Transport-Security", "max-age=31536000")
		inner.ServeHTTP(w, r)
	})
}
