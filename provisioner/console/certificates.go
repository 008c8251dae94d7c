package console

import (
	"context"
	"net/http"
	"net/url"
	"slices"

	"muster/internal/wire"
	"muster/provisioner/fleet"
	"muster/provisioner/services"
	"muster/provisioner/trust"
)

// certificatesPage is a list of service certificates. Its form has the parameters of the API.
type certificatesPage struct {
	url.Values // as given

	States  []services.State
	Withins []choice
	Sorts   []choice
	Page    *services.Page
	First   string // link, empty on the first page
	Next    string // link
	Problem string // of the request
}

// endsWithin are choices of expires_before.
var endsWithin = []choice{
	{"", "any time"}, {"0s", "has expired"}, {"1d", "within a day"}, {"7d", "within 7 days"}, {"30d", "within 30 days"},
}

// Filtered reports whether a filter is set.
func (p *certificatesPage) Filtered() bool {
	return p.Get("match")+p.Get("name")+p.Get("state")+p.Get("expires_before")+p.Get("stuck") != ""
}

func (p *certificatesPage) link(cursor string) string {
	p.Del("cursor")
	if cursor != "" {
		p.Set("cursor", cursor)
	}
	return "/certificates?" + p.Encode()
}

func (c certificatePages) certificates(v *visit) error {
	p := &certificatesPage{
		Values:  v.r.URL.Query(),
		States:  services.States,
		Withins: endsWithin,
		Sorts:   sorts,
	}
	paged := p.Get("cursor") != ""
	q, err := services.ParseQuery(p.Values, c.cfg.Now())
	if err == nil {
		p.Page, err = c.cfg.Certificates.Index().Page(q)
	}
	if err != nil {
		p.Problem = err.Error()
		status, _, _ := c.problem(err)
		if status == http.StatusInternalServerError { // the remaining errors are of the filter
			status = http.StatusBadRequest
		}
		c.show(v.w, v.r, v.login, status, "certificates", "Certificates", p)
		return nil
	}
	if paged {
		p.First = p.link("")
	}
	if p.Page.Next != "" {
		p.Next = p.link(p.Page.Next)
	}
	return c.page(v, "certificates", "Certificates", p)
}

// certificatePage is a service certificate.
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
	id, err := wire.ParseName(v.r.PathValue("identity"))
	if err != nil {
		return badRequest(err)
	}
	if p.CertificateReport, err = c.cfg.Nodes.Certificate(id, v.r.PathValue("name")); err != nil {
		return err
	}
	for _, f := range p.Findings {
		for _, a := range f.Do {
			if said := adviceOf(a); a.Verb == "" && !slices.Contains(p.Do, said) {
				p.Do = append(p.Do, said) // buttons stand for the rest
			}
		}
	}
	for _, a := range certificateActions {
		verb := "certificate " + a.Name
		if slices.ContainsFunc(p.Findings, func(f fleet.Finding) bool {
			return slices.ContainsFunc(f.Do, func(a fleet.Action) bool { return a.Verb == verb })
		}) {
			p.Actions = append(p.Actions, a)
		}
	}
	return c.page(v, "certificate", p.Name+" of "+string(id), p)
}

func (c certificatePages) order(v *visit) (*order, error) {
	id, err := wire.ParseName(v.r.PathValue("identity"))
	if err != nil {
		return nil, badRequest(err)
	}
	a := named(certificateActions, v.r.PathValue("action"))
	if a == nil {
		return nil, errNoPage
	}
	name, request, all := v.r.PathValue("name"), v.r.FormValue("request"), c.cfg.Certificates
	return &order{
		action: a,
		Back:   certificateLink(id, name),
		On:     []string{name + " of " + string(id)},
		Fields: url.Values{"request": {request}},
		do: func(ctx context.Context, cause trust.Cause) error {
			switch a.Name {
			case "approve":
				return all.Approve(ctx, id, name, request, cause)
			case "reject":
				return all.Reject(ctx, id, name, request, cause)
			}
			return all.Revoke(ctx, id, name, cause)
		},
	}, nil
}

func certificateLink(id wire.Identity, name string) string {
	return "/certificates/" + string(id) + "/" + url.PathEscape(name)
}
