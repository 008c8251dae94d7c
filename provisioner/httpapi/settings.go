package httpapi

import (
	"net/http"

	"muster/jwt"
	"muster/provisioner/operate"
	"muster/provisioner/orders"
	"muster/provisioner/trust"
)

// Settings apply to the whole installation.
type Settings struct {
	Pauses []*orders.Pause `json:"pauses"` // the installation's first
}

// A NewPause pauses enrollment.
type NewPause struct {
	Site     jwt.Site `json:"site,omitempty"`     // empty: everywhere
	Renewals bool     `json:"renewals,omitempty"` // pause renewals too
	Why      string   `json:"why,omitempty"`
}

// A Resumption ends a pause.
type Resumption struct {
	Site jwt.Site `json:"site,omitempty"` // empty: the installation's pause
	Why  string   `json:"why,omitempty"`
}

func settingRoutes(s *Server) {
	pauses := s.cfg.Orders.Pauses
	settings := func() *Settings { return &Settings{Pauses: pauses.List()} }
	get(s, viewer, "/v1/settings", func(*http.Request) (*Settings, error) { return settings(), nil })
	change(s, operator, "/v1/settings/pause", func(r *http.Request, q *NewPause, c trust.Cause) (*Settings, error) {
		_, err := pauses.Begin(r.Context(), q.Site, q.Renewals, c)
		return settings(), err
	})
	change(s, operator, "/v1/settings/resume", func(r *http.Request, q *Resumption, c trust.Cause) (*Settings, error) {
		err := pauses.End(r.Context(), q.Site, c)
		return settings(), err
	})
}

func policyRoutes(s *Server) {
	process := s.cfg.Orders.Process
	get(s, viewer, "/v1/policy", func(*http.Request) (*operate.PolicyInUse, error) { return process.Policy(), nil })
	change(s, operator, "/v1/policy/reload",
		func(r *http.Request, _ *Reason, c trust.Cause) (*operate.PolicyInUse, error) {
			return process.ReloadPolicy(r.Context(), c)
		})
}
