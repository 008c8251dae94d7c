package console

import (
	"context"
	"net/url"
	"strings"

	"muster/internal/wire"
	"muster/provisioner/fleet"
	"muster/provisioner/services"
	"muster/provisioner/trust"
)

type certificatesPage struct {
	listForm

	States  []services.State
	Withins []choice
	Sorts   []choice
	Page    *services.Page
}

func (c certificatePages) certificates(v *visit) error {
	p := &certificatesPage{listForm: formOf(v), States: services.States, Withins: withins, Sorts: sorts}
	q, err := services.ParseQuery(p.Values, c.cfg.Now())
	if err != nil {
		err = badRequest(err)
	} else {
		q.Of = c.cfg.Fleet.At(v.login.Sites)
		if p.Page, err = c.cfg.Certificates.Index().Page(q); err == nil {
			p.Pages = pageNumbers(p.Page.Total, q.Query)
		}
	}
	return c.list(v, "certificates", "Certificates", &p.listForm, p, err)
}

type certificatePage struct {
	*fleet.CertificateReport
	Actions []*action // for its state
	Do      []advice
	Done    string
}

// certificateActions begin with the harmless ones.
var certificateActions = []*action{
	{
		Name:  "approve",
		Label: "Approve",
		Touches: []string{
			"The node gets a certificate with the names that it asks for, at its next request within a day.",
			"Renewals with the same names need no other approval.",
		},
		Done: "Approved: the node gets the certificate at its next request.",
	},
	{
		Name:   "reject",
		Label:  "Reject",
		Danger: true,
		Touches: []string{
			"The node gets no certificate with these names. It may ask for other names.",
			"You can still approve the request later.",
		},
		Done: "Rejected.",
	},
	{
		Name:  "revoke",
		Label: "Revoke",
		Grave: true,
		Touches: []string{
			"All its certificates go on the revocation list.",
			"The node stays in the fleet, and may ask for another one with a new key.",
		},
		Done: "Revoked.",
	},
}

func (c certificatePages) certificate(v *visit) error {
	p := &certificatePage{Done: done(v, certificateActions)}
	var err error
	if p.CertificateReport, err = c.cfg.Nodes.Certificate(v.node, v.r.PathValue("name")); err != nil {
		return err
	}
	for _, f := range p.Findings {
		for _, a := range f.Do {
			if button := named(certificateActions, strings.TrimPrefix(a.Verb, "certificate ")); button != nil {
				p.Actions = append(p.Actions, button)
			} else {
				p.Do = append(p.Do, adviceOf(a))
			}
		}
	}
	return c.page(v, "certificate", p.Name+" of "+string(v.node), p)
}

func (c certificatePages) order(v *visit, o *order) error {
	id, name, request, all := v.node, v.r.PathValue("name"), v.r.FormValue("request"), c.cfg.Certificates
	o.Back, o.On = certificateLink(id, name), []string{name + " of " + string(id)}
	o.Fields = url.Values{"request": {request}}
	o.do = func(ctx context.Context, cause trust.Cause) error {
		switch o.Name {
		case "approve":
			return all.Approve(ctx, id, name, request, cause)
		case "reject":
			return all.Reject(ctx, id, name, request, cause)
		}
		return all.Revoke(ctx, id, name, cause)
	}
	return nil
}

func certificateLink(id wire.Identity, name string) string {
	return "/certificates/" + string(id) + "/" + url.PathEscape(name)
}
