package console

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"muster/provisioner/login"
	"muster/provisioner/trust"
)

const (
	// cookieSession holds the operator's token, so any provisioner of the installation accepts the session, without
	// state. The prefix makes browsers accept it only from this host over TLS.
	cookieSession = "__Host-muster-session"

	// cookieForm holds a secret that forms repeat: another site can make the browser send the cookie, but does not know
	// it.
	cookieForm = "__Host-muster-form"
	fieldForm  = "form"

	// cookieFlow holds what a sign-in by OpenID Connect has begun with: its secret, and the page after it.
	cookieFlow = "__Host-muster-flow"

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
	OIDC    string // issuer of OpenID Connect, or ""
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
	c.askLogin(w, r, http.StatusOK, r.URL.Query().Get("next"), "")
}

func (c *Console) askLogin(w http.ResponseWriter, r *http.Request, status int, next, problem string) {
	p := loginPage{Next: local(next), Problem: problem}
	if provider := c.cfg.Login.OIDC(); provider != nil {
		p.OIDC = provider.Issuer
	}
	c.show(w, r, nil, status, "login", "Sign in", p)
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
	c.signedIn(w, r, l, token, next)
}

func (c *Console) signedIn(w http.ResponseWriter, r *http.Request, l *login.Login, token, next string) {
	http.SetCookie(w, cookie(cookieSession, token, l.Expires))
	http.SetCookie(w, cookie(cookieForm, rand.Text(), time.Time{})) // the former secret predates the session
	c.cfg.Log.InfoContext(r.Context(), "operator signed in to the console",
		"by", l.By(), "source", r.RemoteAddr, "until", l.Expires)
	http.Redirect(w, r, local(next), http.StatusSeeOther) //nolint:gosec // local returns paths of this site
}

// pathBack is where the provider of OpenID Connect sends browsers; it is registered there.
const pathBack = "/login/oidc/back"

// flow returns the sign-in with a secret. The host is the browser's; the provider accepts only those registered.
func flow(r *http.Request, secret string) login.Flow {
	return login.Flow{Secret: secret, Redirect: "https://" + r.Host + pathBack}
}

// beginFlow sends the browser to the provider. A link of another site may do so, which changes nothing.
func (c *Console) beginFlow(w http.ResponseWriter, r *http.Request) {
	secret, next := rand.Text(), local(r.URL.Query().Get("next"))
	to, err := c.cfg.Login.OIDC().Begin(r.Context(), flow(r, secret))
	if err != nil {
		c.refuseLogin(w, r, next, err)
		return
	}
	http.SetCookie(w, cookie(cookieFlow, secret+"."+base64.RawURLEncoding.EncodeToString([]byte(next)), time.Time{}))
	http.Redirect(w, r, to, http.StatusSeeOther) //nolint:gosec // the provider of provisioner.yaml
}

// endFlow signs in a browser that the provider has sent back.
func (c *Console) endFlow(w http.ResponseWriter, r *http.Request) {
	var secret, next string
	if had, err := r.Cookie(cookieFlow); err == nil {
		secret, next, _ = strings.Cut(had.Value, ".")
		decoded, _ := base64.RawURLEncoding.DecodeString(next)
		next = local(string(decoded))
	}
	http.SetCookie(w, cookie(cookieFlow, "", time.Unix(1, 0))) // once
	l, session, err := c.cfg.Login.SignIn(r.Context(), flow(r, secret), r.URL.Query(), r.RemoteAddr)
	if err != nil {
		c.refuseLogin(w, r, next, err)
		return
	}
	c.signedIn(w, r, l, session, next)
}

func (c *Console) refuseLogin(w http.ResponseWriter, r *http.Request, next string, err error) {
	status, what, remedy := c.problem(err)
	c.askLogin(w, r, status, next, sentence(what)+" "+sentence(remedy))
}

// logout deletes the cookies, and ends the session. A token stays valid until it expires.
func (c *Console) logout(w http.ResponseWriter, r *http.Request) {
	if err := readForm(w, r); err != nil {
		c.fail(w, r, nil, err)
		return
	}
	if l, err := c.authenticate(r); err == nil && l.Session != "" {
		err := c.cfg.Login.End(r.Context(), l.Session, trust.Cause{By: l.By(), Why: "signed out"})
		if err != nil && !errors.Is(err, login.ErrNoSession) {
			c.fail(w, r, l, err)
			return
		}
	}
	for _, name := range []string{cookieSession, cookieForm} {
		http.SetCookie(w, cookie(name, "", time.Unix(1, 0)))
	}
	http.Redirect(w, r, "/login", http.StatusSeeOther)
}
