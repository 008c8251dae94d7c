package httpapi

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"

	"muster/provisioner/operate"
)

// ProbesConfig configures [OpenProbes].
type ProbesConfig struct {
	// Listen is host:port. Required.
	Listen string

	// Alive and Ready return what a restart may cure, and what keeps this provisioner from serving, by name. Only names
	// are shown. Required.
	Alive, Ready func(context.Context) map[string]error

	Metrics http.Handler // serves GET /metrics; nil: 404
	Log     *slog.Logger // required
}

// Probes answers /healthz and /readyz without TLS and credentials.
type Probes struct {
	cfg      ProbesConfig
	listener net.Listener
}

// OpenProbes listens. Connections wait for Run.
func OpenProbes(cfg ProbesConfig) (*Probes, error) {
	l, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return nil, err
	}
	return &Probes{cfg, l}, nil
}

// URL has no path.
func (p *Probes) URL() string { return "http://" + p.listener.Addr().String() }

// Run serves until ctx is done, and returns nil.
func (p *Probes) Run(ctx context.Context) error {
	mux := http.NewServeMux()
	mux.Handle("GET /healthz", probe(p.cfg.Alive))
	mux.Handle("GET /readyz", probe(p.cfg.Ready))
	if p.cfg.Metrics != nil {
		mux.Handle("GET /metrics", p.cfg.Metrics)
	}
	kept := &places{held: make(map[net.Conn]*place)}
	err := serve(ctx, &http.Server{
		Handler:        mux,
		ReadTimeout:    readTimeout,
		WriteTimeout:   stalledTimeout,
		IdleTimeout:    idleTimeout,
		MaxHeaderBytes: maxHeaderBytes,
		ConnState:      kept.follow,
		ErrorLog:       slog.NewLogLogger(p.cfg.Log.Handler(), slog.LevelDebug), // strangers cause these
	}, p.listener)
	if err != nil {
		return fmt.Errorf("probes: %w", err)
	}
	return nil
}

func probe(parts func(context.Context) map[string]error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		h, p := healthOf(parts(r.Context()))
		if p != nil {
			p.write(w)
			return
		}
		w.Header().Set("Content-Type", typeJSON)
		writeJSON(w, h)
	}
}

// Health is the answer of a running process.
type Health struct {
	Status string `json:"status"`           // ok
	Paused bool   `json:"paused,omitempty"` // enrollment is paused somewhere
}

func healthRoutes(s *Server) {
	get(s, anyone, "/healthz", func(*http.Request) (*Health, error) { return &Health{Status: "ok"}, nil })
	get(s, anyone, "/readyz", func(r *http.Request) (*Health, error) {
		h, p := healthOf(s.cfg.Ready(r.Context()))
		if p != nil {
			return nil, p
		}
		h.Paused = len(s.cfg.Orders.Pauses.List()) > 0
		return h, nil
	})
	get(s, anyone, "/v1/ca", func(*http.Request) (*operate.AuthorityInfo, error) {
		return s.cfg.Orders.Process.Authority(), nil
	})
	s.handle("GET /metrics", viewer, func(w http.ResponseWriter, r *http.Request) {
		s.cfg.Metrics.ServeHTTP(w, r)
	})
}

// healthOf names the parts with an error in its problem, or nil.
func healthOf(parts map[string]error) (*Health, *Problem) {
	maps.DeleteFunc(parts, func(_ string, err error) bool { return err == nil })
	if len(parts) == 0 {
		return &Health{Status: "ok"}, nil
	}
	return nil, &Problem{
		Detail: "not ready: " + strings.Join(slices.Sorted(maps.Keys(parts)), ", "),
		Status: http.StatusServiceUnavailable,
		Remedy: "the provisioner's log says why",
	}
}
