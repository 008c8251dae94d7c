package httpapi

import (
	"net/http"

	"muster/provisioner/events"
	"muster/provisioner/trust"
)

func webhookRoutes(s *Server) {
	hooks := s.cfg.Webhooks
	getList(s, viewer, "/v1/webhooks", func(*http.Request) ([]events.Webhook, error) { return hooks.List(), nil })
	post(s, access{role: operator}, "/v1/webhooks/{name}/test", func(
		r *http.Request, _ *none, c trust.Cause,
	) (*events.WebhookAnswer, error) {
		return hooks.Test(r.Context(), r.PathValue("name"), c.By)
	})
}
