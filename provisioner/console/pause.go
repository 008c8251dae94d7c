package console

import (
	"fmt"
	"net/http"

	"muster/jwt"
)

// pauseDone says what was just done about the whole installation.
var pauseDone = map[string]string{
	"pause":  "Enrollment is paused: nobody new gets in, on any provisioner, until somebody resumes it.",
	"resume": "Enrollment goes on: who was told to wait comes back by itself.",
}

// pauseConfirmation says what pausing everywhere, or resuming where it is paused,
// will touch.
func pauseConfirmation(action string, site jwt.Site) *confirmation {
	on := "the whole installation"
	if site != "" {
		on = fmt.Sprintf("site %s", site)
	}
	p := &confirmation{To: "/enrollment/" + action, Back: "/", On: []string{on}, Fields: map[string]string{"site": string(site)}}
	if action == "resume" {
		p.Title, p.Touches = "Resume enrollment", []string{"Machines may enroll again, on every provisioner, within a second.", "Who was told to wait comes back by itself, within seconds to minutes."}
	} else {
		p.Title, p.Danger = "Pause enrollment", true
		p.Touches = []string{
			"Nobody enrolls any more, on any provisioner, within a second, until somebody resumes it.", "Nodes of the fleet stay connected, and renew their certificates.",
			"Machines that ask are told to come back later, and do.",
		}
	}
	p.Button = p.Title
	return p
}

// pauseAction reads the action from the address, and the site from the form.
func pauseAction(v *visit) (string, jwt.Site, error) {
	action, site := v.r.PathValue("action"), jwt.Site(v.r.FormValue("site"))
	if pauseDone[action] == "" {
		return "", "", errNoPage
	}
	if action == "pause" {
		site = "" // of one site: `muster pause --site`
	}
	return action, site, nil
}

func (c overviewPages) confirmPause(v *visit) error {
	action, site, err := pauseAction(v)
	if err != nil {
		return err
	}
	p := pauseConfirmation(action, site)
	return c.page(v, "confirm", p.Title, p)
}

// pauseOrResume does what was confirmed. Sent twice, a pause replaces itself, and of
// two resumptions the second has nothing to do.
func (c overviewPages) pauseOrResume(v *visit) error {
	action, site, err := pauseAction(v)
	if err != nil {
		return err
	}
	if err := reason(v); err != nil {
		return c.askAgain(v, err, pauseConfirmation(action, site))
	}
	if action == "pause" {
		_, err = c.cfg.Provisioner.Pause(v.r.Context(), site, false, v.cause())
	} else {
		err = c.cfg.Provisioner.Resume(v.r.Context(), site, v.cause())
	}
	if err != nil {
		return err
	}
	http.Redirect(v.w, v.r, "/?done="+action, http.StatusSeeOther)
	return nil
}

// Everywhere reports whether the whole installation is paused.
func (p *overviewPage) Everywhere() bool { return len(p.Pauses) > 0 && p.Pauses[0].Site == "" }
