package httpapi

import (
	"net/http"

	"muster/provisioner/events"
)

func webhookRoutes(s *Server) {
	hooks := s.cfg.Webhooks
	getList(s, viewer, "/v1/webhooks", func(*http.Request) ([]events.Webhook, error) { return hooks.List(), nil })
	ask(s, operator, "/v1/webhooks/{name}/test", func(r *http.Request, _ *none) (*events.WebhookAnswer, error) {
		return hooks.Test(r.Context(), r.PathValue("name"), by(r.Context()))
	})
}
