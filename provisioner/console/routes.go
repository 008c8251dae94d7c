package console

import (
	"crypto/sha256"
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
	serve func(*visit) error
}

// table is every page for operators. What changes something is a POST, and
// carries a form of ours.
func (c *Console) table() map[string]route {
	const viewer, operator = provisioner.RoleViewer, provisioner.RoleOperator
	overview, nodes, approvals := overviewPages{c}, nodePages{c}, approvalPages{c}
	allow, tokens, policies, events := allowPages{c}, tokenPages{c}, policyPages{c}, eventPages{c}
	return map[string]route{
		"GET /{$}":                           {viewer, overview.overview},
		"GET /enrollment/{action}":           {operator, overview.confirmPause},
		"POST /enrollment/{action}":          {operator, overview.pauseOrResume},
		"GET /nodes":                         {viewer, nodes.nodes},
		"GET /nodes/{identity}":              {viewer, nodes.node},
		"GET /nodes/{identity}/do/{action}":  {operator, nodes.confirmNode},
		"POST /nodes/{identity}/do/{action}": {operator, nodes.actOnNode},
		"GET /approvals":                     {viewer, approvals.approvals},
		"POST /approvals/confirm":            {operator, approvals.confirmVerdict},
		"POST /approvals/decide":             {operator, approvals.decide},
		"GET /allow":                         {viewer, allow.allow},
		"POST /allow":                        {operator, allow.addAllowance},
		"GET /allow/remove":                  {operator, allow.confirmRemoval},
		"POST /allow/remove":                 {operator, allow.removeAllowance},
		"GET /tokens":                        {viewer, tokens.tokens},
		"GET /tokens/{tid}":                  {viewer, tokens.token},
		"GET /tokens/{tid}/do/{action}":      {operator, tokens.confirmToken},
		"POST /tokens/{tid}/do/{action}":     {operator, tokens.actOnToken},
		"GET /policies":                      {viewer, policies.policies},
		"POST /policies/reload":              {operator, policies.reloadPolicy},
		"POST /policies/replay":              {operator, policies.replay},
		"GET /events":                        {viewer, events.events},
		"GET /live":                          {viewer, events.live},
	}
}

// The pages of a noun each.
type (
	overviewPages struct{ *Console }
	nodePages     struct{ *Console }
	approvalPages struct{ *Console }
	allowPages    struct{ *Console }
	tokenPages    struct{ *Console }
	policyPages   struct{ *Console }
	eventPages    struct{ *Console }
)

func (c *Console) routes() {
	for pattern, need := range c.table() {
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
	tags := entityTags(assets)
	static := http.StripPrefix("/assets/", http.FileServerFS(assets))
	c.mux.HandleFunc("GET /assets/{name}", func(w http.ResponseWriter, r *http.Request) {
		tag, there := tags[r.PathValue("name")]
		if !there {
			c.fail(w, r, nil, errNoPage)
			return
		}
		// They are of the program that runs: a browser asks each time, and gets none that it has.
		w.Header().Set("Cache-Control", "no-cache")
		w.Header().Set("ETag", tag)
		static.ServeHTTP(w, r)
	})
	c.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		login, _ := c.authenticate(r)
		c.fail(w, r, login, errNoPage)
	})
}

// entityTags returns, for each file by its name, a tag that is another one for other content
// (RFC 9110 section 8.8.3): files in the program have no time by which to tell.
func entityTags(assets fs.FS) map[string]string {
	tags := make(map[string]string)
	names, err := fs.Glob(assets, "*")
	for _, name := range names {
		b, readErr := fs.ReadFile(assets, name)
		err = errors.Join(err, readErr)
		sum := sha256.Sum256(b)
		tags[name] = fmt.Sprintf(`"%x"`, sum[:16])
	}
	if err != nil {
		panic(err) // they are in the program
	}
	return tags
}

// visit serves a page to who may see it.
func (c *Console) visit(w http.ResponseWriter, r *http.Request, need route) {
	login, err := c.authenticate(r)
	if err != nil {
		c.strange(w, r, err)
		return
	}
	if _, err := url.ParseQuery(r.URL.RawQuery); err != nil { // what cannot be read of it would be left out
		c.fail(w, r, login, &formError{fmt.Errorf("the address: %w", err)})
		return
	}
	if !login.Role.Covers(need.role) {
		c.cfg.Log.WarnContext(r.Context(), "operator's request refused", "subject", subject(r), "by", login.By(), "role", login.Role, "needs", need.role)
		c.fail(w, r, login, &roleError{login, need.role})
		return
	}
	v := &visit{w: w, r: r, login: login}
	if r.Method == http.MethodPost {
		if err := readForm(w, r); err != nil {
			c.fail(w, r, login, err)
			return
		}
		// Who goes to another page meanwhile has not taken it back.
		finishing, end := provisioner.Finishing(r.Context())
		defer end()
		v.r = r.WithContext(finishing)
	}
	c.activity.wake()
	if err := need.serve(v); err != nil {
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
		c.show(w, r, nil, http.StatusUnauthorized, "login", "Sign in", loginPage{
			Next:    local(r.URL.Path),
			Problem: "Your session is over: nothing was done.",
		})
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
