// Package pause implements "muster pause" and "muster resume".
package pause

import (
	"context"
	"fmt"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/jwt"
	"muster/provisioner/httpapi"
)

const pauseHelp = `No node enrolls until 'muster resume', on any provisioner. Nodes get that answer,
and try again by themselves. Nodes of the fleet stay connected, and confirm and
renew as usual; with --renewals, certificates are not renewed either, and a node
whose certificate ends meanwhile leaves the fleet until then.

  muster pause --why 'the helper hands out wrong addresses'
  muster pause --site ams1 --why 'rack moves'`

const resumeHelp = `Ends a pause. Nodes try again by themselves within two minutes. The pause of a site
ends with --site only.

  muster resume
  muster resume --site ams1 --why 'the rack is in place'`

// Add adds both verbs.
func Add(app *kingpin.Application, all cli.Verbs) {
	var site jwt.Site
	var renewals bool
	c := app.Command("pause", "Stop enrollment for a while.").HelpLong(pauseHelp)
	cli.Parse(cli.Flag(c, "site"), &site, jwt.ParseSite)
	cli.Flag(c, "renewals").BoolVar(&renewals)
	verb.Order(c, all, func(ctx context.Context, o *verb.Operator) (*httpapi.Settings, error) {
		return verb.Post[*httpapi.Settings](ctx, o, "/v1/settings/pause",
			httpapi.NewPause{Site: site, Renewals: renewals, Why: o.Why})
	}, func(o *verb.Operator, _ *httpapi.Settings) fmt.Stringer {
		flag := ""
		if site != "" {
			flag = " --site " + string(site)
		}
		o.Say("enrollment is paused %s, until muster resume%s", where(site), flag)
		return nil
	})
	addResume(app, all)
}

func addResume(app *kingpin.Application, all cli.Verbs) {
	var site jwt.Site
	c := app.Command("resume", "End a pause: nodes enroll again.").HelpLong(resumeHelp)
	cli.Parse(cli.Flag(c, "site"), &site, jwt.ParseSite)
	verb.Order(c, all, func(ctx context.Context, o *verb.Operator) (*httpapi.Settings, error) {
		return verb.Post[*httpapi.Settings](ctx, o, "/v1/settings/resume", httpapi.Resumption{Site: site, Why: o.Why})
	}, func(o *verb.Operator, s *httpapi.Settings) fmt.Stringer {
		o.Say("enrollment is resumed %s", where(site))
		for _, left := range s.Pauses {
			o.Say("still paused %s, by %s: %s", where(left.Site), left.By, left.Why)
		}
		return nil
	})
}

func where(site jwt.Site) string {
	if site == "" {
		return "everywhere"
	}
	return "at site " + string(site)
}
