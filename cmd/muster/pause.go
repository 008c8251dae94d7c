package main

import (
	"context"
	"fmt"
	"net/http"

	"github.com/alecthomas/kingpin/v2"

	"muster/jwt"
	"muster/provisioner/httpapi"
)

// pauseVerb is "muster pause".
type pauseVerb struct {
	operator
	site     string
	renewals bool
}

const pauseHelp = `No machine enrolls until 'muster resume', whichever provisioner it comes to: machines are
told so and come back by themselves. Those of the fleet stay connected, confirmations
are taken, and certificates are renewed unless --renewals says otherwise: one that ends
meanwhile puts its machine out of the fleet until then.

  muster pause --why 'the helper hands out wrong addresses'
  muster pause --site ams1 --why 'rack moves'`

// addPause adds "muster pause".
func addPause(app *kingpin.Application, all verbs) {
	v := &pauseVerb{}
	c := app.Command("pause", "Have no machine enroll for a while.").HelpLong(pauseHelp)
	c.Flag("site", "Only at this site; everywhere if absent.").PlaceHolder("SITE").StringVar(&v.site)
	c.Flag("renewals", "Have no certificate renewed, either.").BoolVar(&v.renewals)
	v.addChange(c, all)
	all.Check(c, func() error { return checkSite(v.site) })
	all[c.FullCommand()] = v.run
}

func (v *pauseVerb) run(ctx context.Context) error {
	var s httpapi.Settings
	err := v.ask(ctx, http.MethodPost, "/v1/settings/pause", httpapi.NewPause{Site: jwt.Site(v.site), Renewals: v.renewals, Why: v.why}, &s)
	if err != nil {
		return err
	}
	return v.printDone(&s, func() error {
		v.say("enrollment is paused %s, until muster resume%s", scopeOf(v.site), flagOf(v.site))
		return nil
	})
}

// resumeVerb is "muster resume".
type resumeVerb struct {
	operator
	site string
}

const resumeHelp = `Ends what 'muster pause' began. Machines come back by themselves within a minute or two. A
pause of a site ends by its own word, with --site.

  muster resume
  muster resume --site ams1 --why 'the rack stands'`

// addResume adds "muster resume".
func addResume(app *kingpin.Application, all verbs) {
	v := &resumeVerb{}
	c := app.Command("resume", "Have machines enroll again.").HelpLong(resumeHelp)
	c.Flag("site", "End the pause of this site; that of the installation if absent.").PlaceHolder("SITE").StringVar(&v.site)
	v.addChange(c, all)
	all.Check(c, func() error { return checkSite(v.site) })
	all[c.FullCommand()] = v.run
}

func (v *resumeVerb) run(ctx context.Context) error {
	var s httpapi.Settings
	if err := v.ask(ctx, http.MethodPost, "/v1/settings/resume", httpapi.Resumption{Site: jwt.Site(v.site), Why: v.why}, &s); err != nil {
		return err
	}
	return v.printDone(&s, func() error {
		v.say("enrollment goes on %s", scopeOf(v.site))
		for _, left := range s.Pauses {
			v.say("still paused %s, by %s: %s", scopeOf(string(left.Site)), left.By, left.Why)
		}
		return nil
	})
}

func checkSite(site string) error {
	if site == "" {
		return nil
	}
	if _, err := jwt.ParseSite(site); err != nil {
		return fmt.Errorf("--site: %w", err)
	}
	return nil
}

// scopeOf says where, for people.
func scopeOf(site string) string {
	if site == "" {
		return "everywhere"
	}
	return "at site " + site
}

func flagOf(site string) string {
	if site == "" {
		return ""
	}
	return " --site " + site
}
