package console

import (
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"muster/provisioner/login"
)

const (
	// cookieSession holds the operator's token: so any provisioner of the
	// installation knows the session, it ends when the token does, and nobody has
	// to keep it. The prefix has browsers take it from this host over TLS only.
	cookieSession = "__Host-muster-session"

	// cookieForm holds what forms carry as well: another site can have the browser
	// send the cookie, and cannot know it.
	cookieForm = "__Host-muster-form"
	fieldForm  = "form"

	maxFormBytes = 256 << 10 // some hundreds of approvals; chosen
	formSecret   = 26        // characters of [rand.Text]
)

// cookie returns a cookie that scripts do not see, and that comes from other sites only where a link of theirs is
// followed, which changes nothing. It ends with the browser's session if expires is zero.
func cookie(name, value string, expires time.Time) *http.Cookie {
	return &http.Cookie{
		Name:     name,
		Value:    value,
		Path:     "/",
		Expires:  expires,
		Secure:   true,
		HttpOnly: true,
		SameSite: http.SameSiteLaxMode,
	}
}

// authenticate says who asks: by the session if there is one, else by the
// certificate of the connection.
func (c *Console) authenticate(r *http.Request) (*login.Login, error) {
	err := login.ErrLogin
	if session, missing := r.Cookie(cookieSession); missing == nil && session.Value != "" {
		var l *login.Login
		if l, err = c.cfg.Login.Token(r.Context(), session.Value, r.RemoteAddr); err == nil {
			return l, nil
		}
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		shown := r.TLS.PeerCertificates
		return c.cfg.Login.Certificate(r.Context(), shown[0], shown[1:], r.RemoteAddr)
	}
	return nil, err
}

// formToken returns the secret that forms carry, and gives the browser one if it
// has none.
func formToken(w http.ResponseWriter, r *http.Request) string {
	if had, err := r.Cookie(cookieForm); err == nil && len(had.Value) == formSecret {
		return had.Value
	}
	secret := rand.Text()
	http.SetCookie(w, cookie(cookieForm, secret, time.Time{}))
	return secret
}

// readForm reads a form that was sent, and checks that it is one of ours.
func readForm(w http.ResponseWriter, r *http.Request) error {
	r.Body = http.MaxBytesReader(w, r.Body, maxFormBytes)
	if err := r.ParseForm(); err != nil {
		return badRequest(fmt.Errorf("the form: %w", err))
	}
	had, err := r.Cookie(cookieForm)
	if err != nil || len(had.Value) != formSecret || subtle.ConstantTimeCompare([]byte(had.Value), []byte(r.PostForm.Get(fieldForm))) != 1 {
		return errForeignForm
	}
	return nil
}

// loginPage is what is shown to who is not known.
type loginPage struct {
	Next    string // where they wanted to go
	Problem string
}

// local returns a path of ours to go on to, "/" for anything else.
func local(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || !strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") || strings.ContainsAny(next, "\\\r\n\t") {
		return "/"
	}
	return next
}

// showLogin asks for a token.
func (c *Console) showLogin(w http.ResponseWriter, r *http.Request) {
	if _, err := r.Cookie(cookieSession); err == nil {
		if _, err := c.authenticate(r); err == nil { // signed in in another tab, say
			http.Redirect(w, r, local(r.URL.Query().Get("next")), http.StatusSeeOther) //nolint:gosec // local has made it a path of ours
			return
		}
	}
	c.show(w, r, nil, http.StatusOK, "login", "Sign in", loginPage{Next: local(r.URL.Query().Get("next"))})
}

// login takes a token that was sent, and lets the browser keep it until it ends.
func (c *Console) login(w http.ResponseWriter, r *http.Request) {
	if err := readForm(w, r); err != nil {
		c.fail(w, r, nil, err)
		return
	}
	next, token := local(r.PostForm.Get("next")), strings.TrimSpace(r.PostForm.Get("token"))
	l, err := c.cfg.Login.Token(r.Context(), token, r.RemoteAddr)
	if err != nil {
		c.refuseLogin(w, r, next, err)
		return
	}
	http.SetCookie(w, cookie(cookieSession, token, l.Expires))
	http.SetCookie(w, cookie(cookieForm, rand.Text(), time.Time{})) // the one before was known before anybody signed in
	c.cfg.Log.InfoContext(r.Context(), "operator signed in to the console", "by", l.By(), "source", r.RemoteAddr, "until", l.Expires)
	http.Redirect(w, r, next, http.StatusSeeOther) //nolint:gosec // local has made it a path of ours
}

// refuseLogin says why nobody is signed in, and asks again.
func (c *Console) refuseLogin(w http.ResponseWriter, r *http.Request, next string, err error) {
	status, what, remedy := c.problem(err)
	c.show(w, r, nil, status, "login", "Sign in", loginPage{Next: next, Problem: sentence(what) + " " + sentence(remedy)})
}

// logout has the browser forget the session. The token itself stays good until it
// ends: it is the operator's.
func (c *Console) logout(w http.ResponseWriter, r *http.Request) {
	if err := readForm(w, r); err != nil {
		c.fail(w, r, nil, err)
		return
	}
	for _, name := range []string{cookieSession, cookieForm} {
		http.SetCookie(w, cookie(name, "", time.Unix(1, 0)))
	}
	http.Redirect(w, r, "/login", http.StatusSeeOther)
}
