package httpapi

import (
	"net/http"

	"muster/provisioner"
)

func policyRoutes(s *Server) {
	p := s.cfg.Provisioner
	get(s, viewer, "/v1/policy", func(*http.Request) (*provisioner.PolicyInUse, error) { return p.Policy(), nil })
	change(s, operator, "/v1/policy/reload", func(r *http.Request, _ *Reason, c provisioner.Cause) (*provisioner.PolicyInUse, error) {
		return p.ReloadPolicy(r.Context(), c)
	})
}
