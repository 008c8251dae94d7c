package console

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"muster/provisioner/trust"

	"muster/provisioner"
	"muster/provisioner/login"
)

// A visit is a request of an authenticated operator.
type visit struct {
	w     http.ResponseWriter
	r     *http.Request
	login *login.Login
}

type route struct {
	role  trust.OperatorRole // at least
	serve func(*visit) error
}

// operatorRoutes are the pages for operators, by pattern. Changes are POST requests with the secret of forms.
func (c *Console) operatorRoutes() map[string]route {
	const viewer, operator = trust.RoleViewer, trust.RoleOperator
	overview, nodes, approvals := overviewPages{c}, nodePages{c}, approvalPages{c}
	allow, tokens, policies, events := allowPages{c}, tokenPages{c}, policyPages{c}, eventPages{c}
	certificates, installation, many := certificatePages{c}, installationPages{c}, manyPages{c}
	pages := map[string]route{
		"GET /{$}":                            {viewer, overview.overview},
		"GET /nodes":                          {viewer, nodes.nodes},
		"GET /nodes/{identity}":               {viewer, nodes.node},
		"GET /approvals":                      {viewer, approvals.approvals},
		"POST /approvals/decide":              {operator, approvals.decide},
		"POST /many":                          {operator, many.nodes},
		"GET /jobs":                           {viewer, many.recent},
		"GET /jobs/{id}":                      {viewer, many.progress},
		"POST /jobs/{id}":                     {operator, many.drive},
		"GET /live":                           {viewer, c.live},
		"GET /installation":                   {viewer, installation.index},
		"GET /operators":                      {viewer, installation.operators},
		"GET /signers":                        {viewer, installation.signers},
		"GET /authority":                      {viewer, installation.authority},
		"GET /webhooks":                       {viewer, installation.webhooks},
		"GET /components":                     {viewer, installation.components},
		"GET /backups":                        {viewer, installation.backups},
		"GET /configuration":                  {trust.RoleAuditor, installation.configuration},
		"GET /tokens/new":                     {viewer, tokens.compose},
		"GET /allow":                          {viewer, allow.allow},
		"POST /allow":                         {operator, allow.addAllowance},
		"GET /certificates":                   {viewer, certificates.certificates},
		"GET /certificates/{identity}/{name}": {viewer, certificates.certificate},
		"GET /tokens":                         {viewer, tokens.tokens},
		"GET /tokens/{tid}":                   {viewer, tokens.token},
		"GET /policies":                       {viewer, policies.policies},
		"POST /policies/try":                  {trust.RoleAdmin, policies.try},
		"GET /events":                         {viewer, events.events},
		"GET /sessions":                       {viewer, c.sessions},
		"GET /sessions/{id}/do/{action}":      {trust.RoleAdmin, c.ordered(sessionActions[:1], c.endSession)},
		"POST /sessions/{id}/do/{action}":     {trust.RoleAdmin, c.ordered(sessionActions[:1], c.endSession)},
		"GET /login/command":                  {viewer, c.command},
		"POST /login/command":                 {viewer, c.command},
	}
	for path, serve := range map[string]func(*visit) error{
		"/nodes": nodes.export, "/tokens": tokens.export, "/certificates": certificates.export,
	} {
		pages["GET "+path+".csv"], pages["GET "+path+".json"] = route{viewer, serve}, route{viewer, serve}
	}
	for path, serve := range map[string]func(*visit) error{
		"/do/{action}":                                c.ordered(pauseActions, overview.order),
		"/nodes/{identity}/do/{action}":               c.ordered(nodeActions, nodes.order),
		"/allow/do/{action}":                          c.ordered(allowActions[1:], allow.order),
		"/certificates/{identity}/{name}/do/{action}": c.ordered(certificateActions, certificates.order),
		"/tokens/{tid}/do/{action}":                   c.ordered(tokenActions, tokens.order),
		"/policies/do/{action}":                       c.ordered(policyActions, policies.order),
	} {
		pages["GET "+path], pages["POST "+path] = route{operator, serve}, route{operator, serve}
	}
	return pages
}

// Routes returns the patterns of the pages for operators.
func Routes() []string { return slices.Collect(maps.Keys((&Console{}).operatorRoutes())) }

// Pages by noun.
type (
	overviewPages    struct{ *Console }
	nodePages        struct{ *Console }
	approvalPages    struct{ *Console }
	allowPages       struct{ *Console }
	tokenPages       struct{ *Console }
	certificatePages struct{ *Console }
	policyPages      struct{ *Console }
	eventPages       struct{ *Console }
	manyPages        struct{ *Console }
)

func (c *Console) routes() {
	c.table = c.operatorRoutes()
	for pattern, need := range c.table {
		c.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { c.visit(w, r, pattern, need) })
	}
	// A reload of a form's answer, and a sign-in after it, are GET requests.
	for path, to := range map[string]string{
		"/approvals/decide": "/approvals", "/policies/try": "/policies", "/logout": "/", "/many": "/nodes",
	} {
		c.mux.Handle("GET "+path, http.RedirectHandler(to, http.StatusSeeOther))
	}
	c.mux.HandleFunc("GET /login", c.showLogin)
	c.mux.HandleFunc("POST /login", c.login)
	if c.cfg.Login.OIDC() != nil {
		c.mux.HandleFunc("GET /login/oidc", c.beginFlow)
		c.mux.HandleFunc("GET "+pathBack, c.endFlow)
	}
	c.mux.HandleFunc("POST /logout", c.logout)
	c.mux.Handle("GET /assets/{name}", http.FileServerFS(files))
	c.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		login, _ := c.authenticate(r)
		c.fail(w, r, login, errNoPage)
	})
}

// visit serves a page to an operator with the role.
func (c *Console) visit(w http.ResponseWriter, r *http.Request, pattern string, need route) {
	login, err := c.authenticate(r)
	if err != nil {
		c.strange(w, r, err)
		return
	}
	if _, err := url.ParseQuery(r.URL.RawQuery); err != nil { // [url.URL.Query] would drop the faulty part
		c.fail(w, r, login, badRequest(fmt.Errorf("the address: %w", err)))
		return
	}
	if !login.Role.Covers(need.role) {
		c.cfg.Log.WarnContext(r.Context(), "operator's request refused",
			"subject", subject(r), "by", login.By(), "role", login.Role, "needs", need.role)
		c.fail(w, r, login, roleError(login, need.role))
		return
	}
	v := &visit{w: w, r: r, login: login}
	if err := c.within(pattern, v); err != nil {
		c.fail(w, r, login, err)
		return
	}
	if r.Method == http.MethodPost {
		if err := readForm(w, r); err != nil {
			c.fail(w, r, login, err)
			return
		}
		// Leaving the page does not take an order back.
		finishing, end := provisioner.Finishing(r.Context())
		defer end()
		v.r = r.WithContext(finishing)
	}
	if err := need.serve(v); err != nil {
		c.fail(w, r, login, err)
	}
}

// strange asks an unauthenticated visitor to sign in.
func (c *Console) strange(w http.ResponseWriter, r *http.Request, err error) {
	if !errors.Is(err, login.ErrLogin) {
		c.refuseLogin(w, r, "/", err)
		return
	}
	if r.Method == http.MethodPost {
		// The confirmation page comes again after signing in.
		c.askLogin(w, r, http.StatusUnauthorized, r.URL.Path, "Your session has expired: nothing was done.")
		return
	}
	to := "/login"
	if r.URL.Path != "/" || r.URL.RawQuery != "" {
		to += "?next=" + url.QueryEscape(r.URL.RequestURI())
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}
