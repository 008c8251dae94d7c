package httpapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"muster/provisioner/fleet"
)

// readingTimeout is how long a request waits for the index after a start; 100,000 records take two seconds.
const readingTimeout = 5 * time.Second

func nodeRoutes(s *Server) {
	get(s, viewer.on(inAnswer), "/v1/nodes", func(r *http.Request) (*fleet.Page, error) {
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
	one := viewer.on(ofNode)
	get(s, one, "/v1/nodes/{identity}", func(r *http.Request) (*fleet.Report, error) {
		return s.cfg.Nodes.Report(r.Context(), identity(r), s.cfg.Now().UTC())
	})
	get(s, one, "/v1/nodes/{identity}/history", func(r *http.Request) (*fleet.History, error) {
		return s.cfg.Nodes.History(r.Context(), identity(r))
	})
	get(s, one, "/v1/nodes/{identity}/explain", func(r *http.Request) (*fleet.Explanation, error) {
		return s.cfg.Nodes.Explain(r.Context(), identity(r), s.cfg.Now().UTC(), s.cfg.Provisioner.Forecast)
	})
}
