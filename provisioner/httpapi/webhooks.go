package httpapi

import (
	"net/http"

	"muster/provisioner"
)

// webhookRoutes lists the webhooks of this process, and tries them.
func webhookRoutes(s *Server) {
	route(s, "GET /v1/webhooks", func(*http.Request, *none) ([]provisioner.Webhook, error) {
		if s.cfg.Webhooks == nil {
			return []provisioner.Webhook{}, nil
		}
		return s.cfg.Webhooks.List(), nil
	})
	route(s, "POST /v1/webhooks/{name}/test", func(r *http.Request, _ *none) (*provisioner.WebhookAnswer, error) {
		if s.cfg.Webhooks == nil {
			return nil, provisioner.ErrUnknownWebhook
		}
		return s.cfg.Webhooks.Test(r.Context(), r.PathValue("name"), by(r.Context()))
	})
}
