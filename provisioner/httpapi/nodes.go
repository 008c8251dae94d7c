package httpapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"muster/internal/wire"
	"muster/provisioner/fleet"
)

// readingTimeout is how long a request waits for the index after a start; 100,000 records take two seconds.
const readingTimeout = 5 * time.Second

func nodeRoutes(s *Server) {
	get(s, viewer, "/v1/nodes", func(r *http.Request) (*fleet.Page, error) {
		v, wrong := parameters(r, fleet.Parameters...)
		q, err := fleet.ParseQuery(v, s.cfg.Now())
		if err = errors.Join(wrong, err); err != nil {
			return nil, badRequest(err)
		}
		q.Sites = sitesOf(r.Context())
		ctx, cancel := context.WithTimeout(r.Context(), readingTimeout)
		defer cancel()
		return s.cfg.Fleet.List(ctx, q)
	})
	getNode(s, "", func(r *http.Request, id wire.Identity) (*fleet.Report, error) {
		return s.cfg.Nodes.Report(r.Context(), id, s.cfg.Now().UTC())
	})
	getNode(s, "/history", func(r *http.Request, id wire.Identity) (*fleet.History, error) {
		return s.cfg.Nodes.History(r.Context(), id)
	})
	getNode(s, "/explain", func(r *http.Request, id wire.Identity) (*fleet.Explanation, error) {
		return s.cfg.Nodes.Explain(r.Context(), id, s.cfg.Now().UTC(), s.cfg.Provisioner.Forecast)
	})
}

func getNode[A any](s *Server, what string, answer func(*http.Request, wire.Identity) (A, error)) {
	get(s, viewer, "/v1/nodes/{identity}"+what, func(r *http.Request) (a A, err error) {
		id, err := identity(r)
		if err != nil {
			return a, err
		}
		return answer(r, id)
	})
}
