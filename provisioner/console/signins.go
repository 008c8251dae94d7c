package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"muster/provisioner/login"
	"muster/provisioner/orders"
	"muster/provisioner/trust"
)

type sessionsPage struct {
	Sessions []orders.Session // newest first
	Own      string           // id
	Done     string
}

var sessionActions = []*action{
	{
		Name:    "end",
		Label:   "End session",
		Danger:  true,
		Touches: []string{"Its holder must sign in again at the provider, on every provisioner, within a second."},
		Done:    "The session is ended.",
	},
	{
		Name:  "login",
		Label: "Sign in for commands",
		Touches: []string{
			"The command `muster login` on this machine gets a session with your name and role.",
			"Go on only if you have just run it, and opened the address that it printed.",
		},
	},
}

func (c *Console) sessions(v *visit) (err error) {
	page := &sessionsPage{Own: v.login.Session, Done: done(v, sessionActions)}
	if page.Sessions, err = c.cfg.Login.Sessions(); err != nil {
		return err
	}
	return c.page(v, "sessions", "Sessions", page)
}

func (c *Console) endSession(v *visit, o *order) error {
	id := v.r.PathValue("id")
	all, err := c.cfg.Login.Sessions()
	i := slices.IndexFunc(all, func(s orders.Session) bool { return s.ID == id })
	if err == nil && i < 0 {
		err = login.ErrNoSession
	}
	if err != nil {
		return err
	}
	o.Back, o.On = "/sessions", []string{"session " + id + " of " + all[i].Name}
	o.do = func(ctx context.Context, cause trust.Cause) error { return c.cfg.Login.End(ctx, id, cause) }
	return nil
}

// command gives a waiting `muster login` of the browser's machine a session, by a redirect to the port of loopback at
// which it listens.
func (c *Console) command(v *visit) error {
	if v.login.Session == "" {
		http.Redirect(v.w, v.r, "/login/oidc?next="+url.QueryEscape(v.r.URL.RequestURI()), http.StatusSeeOther)
		return nil
	}
	v.r.SetPathValue("action", "login")
	return c.ordered(sessionActions[1:], func(v *visit, o *order) error {
		port, err := strconv.ParseUint(v.r.FormValue("port"), 10, 16)
		challenge := v.r.FormValue("challenge")
		if err != nil || len(challenge) != challengeChars {
			return badRequest(errors.New("this is not an address that `muster login` printed"))
		}
		home, h := fmt.Sprintf("http://127.0.0.1:%d", port), v.w.Header()
		h.Set("Content-Security-Policy", strings.Replace(h.Get("Content-Security-Policy"), "form-action 'self'",
			"form-action 'self' "+home, 1))
		o.On, o.Why = []string{"muster login on this machine"}, "muster login"
		o.Fields = url.Values{"port": {v.r.FormValue("port")}, "challenge": {challenge}}
		o.do = func(ctx context.Context, _ trust.Cause) error {
			text, err := c.cfg.Login.Command(ctx, v.login, challenge, v.r.RemoteAddr)
			o.Back = home + "/" + text
			return err
		}
		return nil
	})(v)
}

const challengeChars = 43 // SHA-256 in base64url
