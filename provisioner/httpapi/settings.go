package httpapi

import (
	"net/http"

	"muster/jwt"
	"muster/provisioner"
)

// Settings are those of the installation, the same on every provisioner.
type Settings struct {
	Pauses []*provisioner.Pause `json:"pauses"` // that stand, the installation's first
}

// A NewPause pauses enrollment.
type NewPause struct {
	Site     jwt.Site `json:"site,omitempty"`     // only there; empty for everywhere
	Renewals bool     `json:"renewals,omitempty"` // those too
	Why      string   `json:"why,omitempty"`
}

// A Resumption ends a pause.
type Resumption struct {
	Site jwt.Site `json:"site,omitempty"` // that of this site; empty for the installation's
	Why  string   `json:"why,omitempty"`
}

// reason implements reasoned.
func (n NewPause) reason() string { return n.Why }

// reason implements reasoned.
func (r Resumption) reason() string { return r.Why }

func settingRoutes(s *Server) {
	p := s.cfg.Provisioner
	settings := func() *Settings { return &Settings{Pauses: p.Pauses()} }
	route(s, "GET /v1/settings", func(*http.Request, *none) (*Settings, error) { return settings(), nil })
	route(s, "POST /v1/settings/pause", func(r *http.Request, q *NewPause) (*Settings, error) {
		_, err := p.Pause(r.Context(), q.Site, q.Renewals, cause(r, q.Why))
		return settings(), err
	})
	route(s, "POST /v1/settings/resume", func(r *http.Request, q *Resumption) (*Settings, error) {
		err := p.Resume(r.Context(), q.Site, cause(r, q.Why))
		return settings(), err
	})
}
