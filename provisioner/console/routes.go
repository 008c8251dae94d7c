package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"muster/provisioner/trust"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/login"
)

// A visit is a request of an authenticated operator.
type visit struct {
	w     http.ResponseWriter
	r     *http.Request
	login *login.Login
	node  wire.Identity // of the page, or ""
}

type route struct {
	role  trust.OperatorRole // at least
	serve func(*visit) error
	at    scope // nil: not for operators with a limit to sites
}

// operatorRoutes are the pages for operators, by pattern. Changes are POST requests with the secret of forms.
func (c *Console) operatorRoutes() map[string]route {
	const viewer, operator = trust.RoleViewer, trust.RoleOperator
	overview, nodes, approvals := overviewPages{c}, nodePages{c}, approvalPages{c}
	allow, tokens, policies, events := allowPages{c}, tokenPages{c}, policyPages{c}, eventPages{c}
	certificates, installation, many := certificatePages{c}, installationPages{c}, manyPages{c}
	pages := map[string]route{
		"GET /{$}":                            {viewer, overview.overview, onPage},
		"GET /nodes":                          {viewer, nodes.nodes, onPage},
		"GET /nodes/{identity}":               {viewer, nodes.node, c.ofNode},
		"GET /approvals":                      {viewer, approvals.approvals, onPage},
		"POST /approvals/decide":              {operator, approvals.decide, onPage},
		"POST /many":                          {operator, many.nodes, onPage},
		"GET /jobs":                           {viewer, many.recent, onPage},
		"GET /jobs/{id}":                      {viewer, many.progress, onPage},
		"POST /jobs/{id}":                     {operator, many.drive, onPage},
		"GET /live":                           {viewer, c.live, onPage},
		"GET /installation":                   {viewer, installation.index, nil},
		"GET /operators":                      {viewer, installation.operators, nil},
		"GET /signers":                        {viewer, installation.signers, nil},
		"GET /authority":                      {viewer, installation.authority, nil},
		"GET /webhooks":                       {viewer, installation.webhooks, nil},
		"GET /components":                     {viewer, installation.components, nil},
		"GET /backups":                        {viewer, installation.backups, nil},
		"GET /configuration":                  {trust.RoleAuditor, installation.configuration, nil},
		"GET /tokens/new":                     {viewer, tokens.compose, nil},
		"GET /allow":                          {viewer, allow.allow, nil},
		"POST /allow":                         {operator, allow.addAllowance, nil},
		"GET /certificates":                   {viewer, certificates.certificates, onPage},
		"GET /certificates/{identity}/{name}": {viewer, certificates.certificate, c.ofNode},
		"GET /tokens":                         {viewer, tokens.tokens, onPage},
		"GET /tokens/{tid}":                   {viewer, tokens.token, c.ofToken},
		"GET /policies":                       {viewer, policies.policies, nil},
		"POST /policies/try":                  {trust.RoleAdmin, policies.try, nil},
		"GET /events":                         {viewer, events.events, onPage},
		"GET /sessions":                       {viewer, c.sessions, nil},
	}
	for path, serve := range map[string]func(*visit) error{
		"/nodes": nodes.export, "/tokens": tokens.export, "/certificates": certificates.export,
		"/events": events.export,
	} {
		file := route{viewer, serve, onPage}
		pages["GET "+path+".csv"], pages["GET "+path+".json"] = file, file
	}
	for path, order := range map[string]route{
		"/do/{action}":                  {operator, c.ordered(pauseActions, overview.order), nil},
		"/nodes/{identity}/do/{action}": {operator, c.ordered(nodeActions, nodes.order), c.ofNode},
		"/allow/do/{action}":            {operator, c.ordered(allowActions[1:], allow.order), nil},
		"/certificates/{identity}/{name}/do/{action}": {
			operator, c.ordered(certificateActions, certificates.order), c.ofNode,
		},
		"/tokens/{tid}/do/{action}":  {operator, c.ordered(tokenActions, tokens.order), c.ofToken},
		"/policies/do/{action}":      {operator, c.ordered(policyActions, policies.order), nil},
		"/sessions/{id}/do/{action}": {trust.RoleAdmin, c.ordered(sessionActions[:1], c.endSession), nil},
		"/login/command":             {viewer, c.command, onPage},
	} {
		pages["GET "+path], pages["POST "+path] = order, order
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
		c.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { c.visit(w, r, need) })
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

func (c *Console) visit(w http.ResponseWriter, r *http.Request, need route) {
	login, err := c.authenticate(r)
	if err != nil {
		c.strange(w, r, err)
		return
	}
	v := &visit{w: w, r: r, login: login}
	if err = c.admit(r.Context(), v, &need); err == nil {
		if r.Method == http.MethodPost { // leaving the page does not take an order back
			finishing, end := provisioner.Finishing(r.Context())
			defer end()
			v.r = r.WithContext(finishing)
		}
		err = need.serve(v)
	}
	if err != nil {
		c.fail(w, r, login, err)
	}
}

func (c *Console) admit(ctx context.Context, v *visit, need *route) (err error) {
	if _, err = url.ParseQuery(v.r.URL.RawQuery); err != nil { // [url.URL.Query] would drop the faulty part
		return badRequest(fmt.Errorf("the address: %w", err))
	}
	if !v.login.Role.Covers(need.role) {
		c.cfg.Log.WarnContext(ctx, "operator's request refused",
			"subject", subject(v.r), "by", v.login.By(), "role", v.login.Role, "needs", need.role)
		return roleError(v.login, need.role)
	}
	name := v.r.PathValue("identity")
	if name != "" {
		if v.node, err = wire.ParseName(name); err != nil {
			return badRequest(err)
		}
	}
	err = need.within(ctx, cmp.Or(name, v.r.PathValue("tid")), v.login.Sites)
	if err == nil && v.r.Method == http.MethodPost {
		err = readForm(v.w, v.r)
	}
	return err
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
