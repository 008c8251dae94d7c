package console

import (
	"context"
	"net/url"

	"muster/provisioner/trust"

	"muster/jwt"
)

var pauseActions = []*action{
	{
		Name:   "pause",
		Label:  "Pause enrollment",
		Danger: true,
		Touches: []string{
			"No node enrolls any more, on any provisioner, within a second, until an operator resumes it.",
			"Nodes of the fleet stay connected, and renew their certificates.",
			"Nodes that ask are told to retry, and do.",
		},
		Done: "Enrollment is paused: no node enrolls, on any provisioner, until an operator resumes it.",
	},
	{
		Name:  "resume",
		Label: "Resume enrollment",
		Touches: []string{
			"Nodes can enroll again, on every provisioner, within a second.",
			"Refused nodes retry by themselves, within seconds to minutes.",
		},
		Done: "Enrollment goes on: refused nodes retry by themselves.",
	},
}

// order pauses the installation, or ends a pause. `muster pause --site` pauses one site.
func (c overviewPages) order(v *visit) (*order, error) {
	a := named(pauseActions, v.r.PathValue("action"))
	if a == nil {
		return nil, errNoPage
	}
	o := &order{action: a, Back: "/", On: []string{"the whole installation"}}
	if a.Name == "pause" {
		o.do = func(ctx context.Context, cause trust.Cause) error {
			_, err := c.cfg.Orders.Pauses.Begin(ctx, "", false, cause)
			return err
		}
		return o, nil
	}
	site := v.r.FormValue("site")
	if site != "" {
		o.On[0] = "site " + site
	}
	o.Fields = url.Values{"site": {site}}
	o.do = func(ctx context.Context, cause trust.Cause) error {
		return c.cfg.Orders.Pauses.End(ctx, jwt.Site(site), cause)
	}
	return o, nil
}

// Everywhere reports whether the whole installation is paused.
func (p *overviewPage) Everywhere() bool { return len(p.Pauses) > 0 && p.Pauses[0].Site == "" }
