package httpapi

import (
	"net/http"

	"muster/provisioner"
)

func policyRoutes(s *Server) {
	p := s.cfg.Provisioner
	route(s, "GET /v1/policy", func(*http.Request, *none) (*provisioner.PolicyInUse, error) { return p.Policy(), nil })
	route(s, "POST /v1/policy/reload", func(r *http.Request, q *Reason) (*provisioner.PolicyInUse, error) {
		return p.ReloadPolicy(r.Context(), cause(r, q.Why))
	})
}
