package httpapi

import (
	"net/http"

	"muster/provisioner"
)

// webhookRoutes list the webhooks of this process, and try them.
func webhookRoutes(s *Server) {
	hooks := s.cfg.Webhooks
	get(s, viewer, "/v1/webhooks", func(*http.Request) ([]provisioner.Webhook, error) { return hooks.List(), nil })
	ask(s, operator, "/v1/webhooks/{name}/test", func(r *http.Request, _ *none) (*provisioner.WebhookAnswer, error) {
		return hooks.Test(r.Context(), r.PathValue("name"), by(r.Context()))
	})
}
