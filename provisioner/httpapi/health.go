package httpapi

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"muster/provisioner/operate"
)

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
	s.handle("GET /metrics", access{role: viewer}, func(w http.ResponseWriter, r *http.Request) {
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
