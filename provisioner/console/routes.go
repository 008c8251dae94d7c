package console

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"

	"muster/provisioner"
)

// A visit is a request of an operator who is known.
type visit struct {
	w     http.ResponseWriter
	r     *http.Request
	login *provisioner.Login
}

// cause returns who asks, and why.
func (v *visit) cause() provisioner.Cause {
	return provisioner.Cause{By: v.login.By(), Why: v.r.PostForm.Get("why")}
}

// route is what a page needs.
type route struct {
	role  provisioner.OperatorRole // the least that may see it, or do it
	serve func(*Console, *visit) error
}

// table is every page for operators. What changes something is a POST, and
// carries a form of ours.
var table = map[string]route{
	"GET /{$}":                           {provisioner.RoleViewer, (*Console).overview},
	"GET /live":                          {provisioner.RoleViewer, (*Console).live},
	"GET /nodes":                         {provisioner.RoleViewer, (*Console).nodes},
	"GET /nodes/{identity}":              {provisioner.RoleViewer, (*Console).node},
	"GET /nodes/{identity}/do/{action}":  {provisioner.RoleOperator, (*Console).confirmNode},
	"POST /nodes/{identity}/do/{action}": {provisioner.RoleOperator, (*Console).actOnNode},
	"GET /approvals":                     {provisioner.RoleViewer, (*Console).approvals},
	"POST /approvals/confirm":            {provisioner.RoleOperator, (*Console).confirmVerdict},
	"POST /approvals/decide":             {provisioner.RoleOperator, (*Console).decide},
	"GET /allow":                         {provisioner.RoleViewer, (*Console).allow},
	"POST /allow":                        {provisioner.RoleOperator, (*Console).addAllowance},
	"GET /allow/remove":                  {provisioner.RoleOperator, (*Console).confirmRemoval},
	"POST /allow/remove":                 {provisioner.RoleOperator, (*Console).removeAllowance},
	"GET /tokens":                        {provisioner.RoleViewer, (*Console).tokens},
	"GET /tokens/{tid}":                  {provisioner.RoleViewer, (*Console).token},
	"GET /tokens/{tid}/do/{action}":      {provisioner.RoleOperator, (*Console).confirmToken},
	"POST /tokens/{tid}/do/{action}":     {provisioner.RoleOperator, (*Console).actOnToken},
	"GET /policies":                      {provisioner.RoleViewer, (*Console).policies},
	"POST /policies/reload":              {provisioner.RoleOperator, (*Console).reloadPolicy},
	"POST /policies/replay":              {provisioner.RoleOperator, (*Console).startReplay},
	"GET /enrollment/{action}":           {provisioner.RoleOperator, (*Console).confirmPause},
	"POST /enrollment/{action}":          {provisioner.RoleOperator, (*Console).pauseOrResume},
	"GET /events":                        {provisioner.RoleViewer, (*Console).events},
}

func (c *Console) routes() {
	for pattern, need := range table {
		c.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { c.visit(w, r, need) })
	}
	// Who loads the answer to a form again, or signs in anew on it, comes here.
	for path, to := range map[string]string{"/approvals/confirm": "/approvals", "/approvals/decide": "/approvals", "/policies/reload": "/policies", "/policies/replay": "/policies", "/logout": "/"} {
		c.mux.Handle("GET "+path, http.RedirectHandler(to, http.StatusSeeOther))
	}
	c.mux.HandleFunc("GET /login", c.showLogin)
	c.mux.HandleFunc("POST /login", c.login)
	c.mux.HandleFunc("POST /logout", c.logout)
	assets, err := fs.Sub(files, "assets")
	if err != nil {
		panic(err) // of a constant
	}
	static := http.StripPrefix("/assets/", http.FileServerFS(assets))
	c.mux.HandleFunc("GET /assets/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-cache") // they are of the program that runs
		static.ServeHTTP(w, r)
	})
	c.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		login, _ := c.authenticate(r)
		c.fail(w, r, login, errNoPage)
	})
}

// visit serves a page to who may see it.
func (c *Console) visit(w http.ResponseWriter, r *http.Request, need route) {
	login, err := c.authenticate(r)
	if err != nil {
		c.strange(w, r, err)
		return
	}
	if !login.Role.Covers(need.role) {
		c.cfg.Log.WarnContext(r.Context(), "operator's request refused", "subject", r.Method+" "+r.URL.Path, "by", login.By(), "role", login.Role, "needs", need.role)
		c.fail(w, r, login, &roleError{login, need.role})
		return
	}
	if r.Method == http.MethodPost {
		if err := readForm(w, r); err != nil {
			c.fail(w, r, login, err)
			return
		}
		// Who goes to another page meanwhile has not taken it back.
		finishing, end := provisioner.Finishing(r.Context())
		defer end()
		r = r.WithContext(finishing)
	}
	c.activity.wake()
	if err := need.serve(c, &visit{w, r, login}); err != nil {
		c.fail(w, r, login, err)
	}
}

// strange answers who is not known: who wants a page is asked to sign in.
func (c *Console) strange(w http.ResponseWriter, r *http.Request, err error) {
	if !errors.Is(err, provisioner.ErrLogin) {
		c.show(w, r, nil, statusOf(err), "login", "Sign in", loginPage{Next: "/", Problem: loginProblem(err)})
		return
	}
	if r.URL.Path == "/live" { // a browser would try again for ever, or give up and not say why
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "event: out\ndata: \n\n") // the browser has gone
		return
	}
	if r.Method == http.MethodPost {
		// Next is where it is asked for again.
		c.show(w, r, nil, http.StatusUnauthorized, "login", "Sign in", loginPage{Next: local(r.URL.Path), Problem: "Your session is over: nothing was done."})
		return
	}
	if r.Header.Get("Sec-Fetch-Site") == "cross-site" {
		// Who follows a link of another site comes without the cookie: loaded again
		// by our own page, it is with it.
		w.Header().Set("Refresh", "0")
		c.show(w, r, nil, http.StatusOK, "problem", "One moment", failPage{What: "You come from another site, and your session is looked for", Back: choice{"/", "To the overview"}})
		return
	}
	to := "/login"
	if r.URL.Path != "/" || r.URL.RawQuery != "" {
		to += "?next=" + url.QueryEscape(r.URL.RequestURI())
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// errNoPage means that there is no such page.
var errNoPage = errors.New("there is no such page")

// errNoReason means that a change came without one.
var errNoReason = errors.New("say why: it goes into the history, for whoever looks at it later")

// A formError is what is wrong with what was filled in.
type formError struct{ err error }

func (e *formError) Error() string { return e.err.Error() }
func (e *formError) Unwrap() error { return e.err }

// A roleError says that an operator may not do something.
type roleError struct {
	login *provisioner.Login
	needs provisioner.OperatorRole
}

func (e *roleError) Error() string {
	return fmt.Sprintf("you are %s (%s), and this needs %s. An admin changes roles with `muster operator add`", e.login.Role, e.login.Name, e.needs)
}
