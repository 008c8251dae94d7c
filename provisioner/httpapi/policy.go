package httpapi

import (
	"net/http"

	"muster/provisioner/trust"

	"muster/provisioner/operate"
)

func policyRoutes(s *Server) {
	process := s.cfg.Orders.Process
	get(s, viewer, "/v1/policy", func(*http.Request) (*operate.PolicyInUse, error) { return process.Policy(), nil })
	change(s, operator, "/v1/policy/reload",
		func(r *http.Request, _ *Reason, c trust.Cause) (*operate.PolicyInUse, error) {
			return process.ReloadPolicy(r.Context(), c)
		})
}
