package httpapi

import (
	"context"
	"errors"
	"net/http"

	"muster/internal/wire"
	"muster/provisioner/fleet"
	"muster/provisioner/services"
	"muster/provisioner/trust"
)

// A CertificateOrder approves, rejects or revokes a service certificate.
type CertificateOrder struct {
	// Request is the request that the operator saw, of an approval or rejection; "": the present one.
	Request string `json:"request,omitempty"`

	Why string `json:"why,omitempty"`
}

func certificateRoutes(s *Server) {
	all := s.cfg.Certificates
	get(s, viewer.on(inAnswer), "/v1/certificates", func(r *http.Request) (*services.Page, error) {
		v, wrong := parameters(r, services.QueryParameters...)
		q, err := services.ParseQuery(v, s.cfg.Now())
		if err = errors.Join(wrong, err); err != nil {
			return nil, badRequest(err)
		}
		q.Of = s.cfg.Fleet.At(sitesOf(r.Context()))
		return all.Index().Page(q)
	})
	const one = "/v1/certificates/{identity}/{name}"
	get(s, viewer.on(ofNode), one, func(r *http.Request) (*fleet.CertificateReport, error) {
		return s.cfg.Nodes.Certificate(identity(r), r.PathValue("name"))
	})
	answer := func(verb string, do func(context.Context, wire.Identity, string, string, trust.Cause) error) {
		change(s, operator.on(ofNode), one+"/"+verb,
			func(r *http.Request, q *CertificateOrder, c trust.Cause) (*none, error) {
				return &none{}, do(r.Context(), identity(r), r.PathValue("name"), q.Request, c)
			})
	}
	answer("approve", all.Approve)
	answer("reject", all.Reject)
	answer("revoke", func(ctx context.Context, id wire.Identity, name, request string, c trust.Cause) error {
		if request != "" {
			return badRequest(errors.New("request: a revocation is of all certificates, not of a request"))
		}
		return all.Revoke(ctx, id, name, c)
	})
}
