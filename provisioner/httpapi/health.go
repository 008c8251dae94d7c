package httpapi

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"muster/provisioner"
)

// Health is the answer of a process that runs.
type Health struct {
	Status string `json:"status"`           // ok
	Paused bool   `json:"paused,omitempty"` // an operator has paused enrollment somewhere; it serves all the same
}

// metricsRoute serves what Prometheus asks for.
func metricsRoute(s *Server) {
	s.raw("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		if s.cfg.Metrics == nil {
			(&Problem{Detail: "this provisioner has no metrics", Status: http.StatusNotFound}).write(w)
			return
		}
		s.cfg.Metrics.ServeHTTP(w, r)
	})
}

func healthRoutes(s *Server) {
	route(s, "GET /healthz", func(*http.Request, *none) (*Health, error) { return &Health{Status: "ok"}, nil })
	route(s, "GET /readyz", func(r *http.Request, _ *none) (*Health, error) {
		well := &Health{Status: "ok", Paused: len(s.cfg.Provisioner.Pauses()) > 0}
		if s.cfg.Ready == nil {
			return well, nil
		}
		found := s.cfg.Ready(r.Context())
		maps.DeleteFunc(found, func(_ string, err error) bool { return err == nil })
		if len(found) > 0 {
			return nil, &Problem{Detail: "not ready: " + strings.Join(slices.Sorted(maps.Keys(found)), ", "), Status: http.StatusServiceUnavailable,
				Remedy: "the provisioner's log says why"}
		}
		return well, nil
	})
	route(s, "GET /v1/ca", func(*http.Request, *none) (*provisioner.AuthorityInfo, error) {
		return s.cfg.Provisioner.DescribeAuthority(), nil
	})
}
