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
	// cookieSession holds the operator's token, so any provisioner of the installation accepts the session, without
	// state. The prefix makes browsers accept it only from this host over TLS.
	cookieSession = "__Host-muster-session"

	// cookieForm holds a secret that forms repeat: another site can make the browser send the cookie, but does not know
	// it.
	cookieForm = "__Host-muster-form"
	fieldForm  = "form"

	maxFormBytes = 256 << 10 // some hundreds of approvals
	formSecret   = 26        // characters of [rand.Text]
)

// cookie is hidden from scripts, and forms of other sites do not send it. A zero expires means the browser's session.
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

// authenticate uses the session, or else the connection's certificate.
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

// formToken returns the secret of forms, and sets its cookie if missing.
func formToken(w http.ResponseWriter, r *http.Request) string {
	if had, err := r.Cookie(cookieForm); err == nil && len(had.Value) == formSecret {
		return had.Value
	}
	secret := rand.Text()
	http.SetCookie(w, cookie(cookieForm, secret, time.Time{}))
	return secret
}

func readForm(w http.ResponseWriter, r *http.Request) error {
	r.Body = http.MaxBytesReader(w, r.Body, maxFormBytes)
	if err := r.ParseForm(); err != nil {
		return badRequest(fmt.Errorf("the form: %w", err))
	}
	had, err := r.Cookie(cookieForm)
	if err != nil || len(had.Value) != formSecret ||
		subtle.ConstantTimeCompare([]byte(had.Value), []byte(r.PostForm.Get(fieldForm))) != 1 {
		return errForeignForm
	}
	return nil
}

type loginPage struct {
	Next    string // page after signing in
	Problem string
}

// local returns next if it is a path of this site, else "/".
func local(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || !strings.HasPrefix(next, "/") ||
		strings.HasPrefix(next, "//") || strings.ContainsAny(next, "\\\r\n\t") {
		return "/"
	}
	return next
}

func (c *Console) showLogin(w http.ResponseWriter, r *http.Request) {
	c.show(w, r, nil, http.StatusOK, "login", "Sign in", loginPage{Next: local(r.URL.Query().Get("next"))})
}

// login keeps the token in a cookie until it expires.
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
	http.SetCookie(w, cookie(cookieForm, rand.Text(), time.Time{})) // the former secret predates the session
	c.cfg.Log.InfoContext(r.Context(), "operator signed in to the console",
		"by", l.By(), "source", r.RemoteAddr, "until", l.Expires)
	http.Redirect(w, r, next, http.StatusSeeOther) //nolint:gosec // local returns paths of this site
}

func (c *Console) refuseLogin(w http.ResponseWriter, r *http.Request, next string, err error) {
	status, what, remedy := c.problem(err)
	c.show(w, r, nil, status, "login", "Sign in", loginPage{
		Next:    next,
		Problem: sentence(what) + " " + sentence(remedy),
	})
}

// logout deletes the cookies. The token stays valid until it expires.
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
