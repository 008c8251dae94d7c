package httpapi

import (
	"net/http"

	"muster/provisioner/orders"
	"muster/provisioner/trust"
)

func sessionRoutes(s *Server) {
	getList(s, viewer, "/v1/sessions", func(*http.Request) ([]orders.Session, error) { return s.cfg.Login.Sessions() })
	change(s, admin, "/v1/sessions/{id}/end", func(r *http.Request, _ *Reason, c trust.Cause) (*none, error) {
		return &none{}, s.cfg.Login.End(r.Context(), r.PathValue("id"), c)
	})
}
