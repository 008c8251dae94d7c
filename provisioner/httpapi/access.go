package httpapi

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"muster/provisioner"
)

// anybody is the role of who has not said who they are.
const anybody provisioner.OperatorRole = ""

// access says who may call a route.
type access struct {
	role    provisioner.OperatorRole // the least that is needed
	changes bool                     // needs a reason over HTTPS
}

// routes is the table of all routes: a route that is not in it cannot be served.
var routes = map[string]access{
	"GET /features": {anybody, false},
	"GET /healthz":  {anybody, false},
	"GET /readyz":   {anybody, false},
	"GET /v1/ca":    {anybody, false},
	"GET /v1/crl":   {anybody, false},

	"GET /v1/ca.pem":    {anybody, false},
	"GET /v1/crl.pem":   {anybody, false},
	"GET /v1/crl.der":   {anybody, false},
	"GET /openapi.json": {anybody, false},

	"GET /v1/tokens":           {provisioner.RoleViewer, false},
	"GET /v1/tokens/{tid}":     {provisioner.RoleViewer, false},
	"POST /v1/tokens/identify": {provisioner.RoleViewer, false},
	"GET /v1/signers":          {provisioner.RoleViewer, false},
	"GET /v1/operators":        {provisioner.RoleViewer, false},
	"GET /v1/self":             {provisioner.RoleViewer, false},

	"GET /v1/nodes":                    {provisioner.RoleViewer, false},
	"GET /v1/nodes/{identity}":         {provisioner.RoleViewer, false},
	"GET /v1/nodes/{identity}/history": {provisioner.RoleViewer, false},
	"GET /v1/nodes/{identity}/explain": {provisioner.RoleViewer, false},
	"GET /v1/waiting":                  {provisioner.RoleViewer, false},
	"GET /v1/allow":                    {provisioner.RoleViewer, false},
	"GET /v1/events":                   {provisioner.RoleViewer, false},
	"GET /v1/webhooks":                 {provisioner.RoleViewer, false},
	"GET /v1/attempts":                 {provisioner.RoleViewer, false},
	"GET /v1/policy":                   {provisioner.RoleViewer, false},
	"GET /v1/components":               {provisioner.RoleViewer, false},
	"GET /v2/features":                 {provisioner.RoleViewer, false},
	"GET /v1/status":                   {provisioner.RoleViewer, false},
	"GET /v1/settings":                 {provisioner.RoleViewer, false},
	"GET /metrics":                     {provisioner.RoleViewer, false},

	// All that nodes have said of themselves, of the whole fleet at once.
	"GET /v1/inputs":                {provisioner.RoleOperator, false},
	"POST /v1/webhooks/{name}/test": {provisioner.RoleOperator, false},
	"POST /v1/policy/reload":        {provisioner.RoleOperator, true},

	"POST /v1/tokens/issued":                {provisioner.RoleOperator, true},
	"POST /v1/tokens/{tid}/revoke":          {provisioner.RoleOperator, true},
	"POST /v1/tokens/{tid}/release":         {provisioner.RoleOperator, true},
	"POST /v1/nodes/{identity}/revoke":      {provisioner.RoleOperator, true},
	"POST /v1/nodes/{identity}/retire":      {provisioner.RoleOperator, true},
	"POST /v1/nodes/{identity}/grant":       {provisioner.RoleOperator, true},
	"POST /v1/nodes/{identity}/reprovision": {provisioner.RoleOperator, true},
	"POST /v1/nodes/{identity}/reconfigure": {provisioner.RoleOperator, true},
	"POST /v1/nodes/{identity}/restart":     {provisioner.RoleOperator, true},
	"POST /v1/nodes/{identity}/shutdown":    {provisioner.RoleOperator, true},
	"POST /v1/nodes/{identity}/approve":     {provisioner.RoleOperator, true},
	"POST /v1/nodes/{identity}/reject":      {provisioner.RoleOperator, true},
	"POST /v1/nodes/{identity}/forget":      {provisioner.RoleOperator, true},
	"POST /v1/allow":                        {provisioner.RoleOperator, true},
	"POST /v1/settings/pause":               {provisioner.RoleOperator, true},
	"POST /v1/settings/resume":              {provisioner.RoleOperator, true},
	"POST /v1/allow/remove":                 {provisioner.RoleOperator, true},

	// What takes back a measure against theft, or says whom to trust.
	"POST /v1/tokens/{tid}/thaw":       {provisioner.RoleAdmin, true},
	"POST /v1/signers":                 {provisioner.RoleAdmin, true},
	"POST /v1/signers/{id}/remove":     {provisioner.RoleAdmin, true},
	"POST /v1/operators":               {provisioner.RoleAdmin, true},
	"POST /v1/operators/{name}/remove": {provisioner.RoleAdmin, true},
	"POST /v1/clock/accept":            {provisioner.RoleAdmin, true},
	"POST /v1/backup":                  {provisioner.RoleAdmin, true},
}

// Routes returns the patterns of all routes, sorted.
func Routes() []string { return slices.Sorted(maps.Keys(routes)) }

// RoleOf returns the role that a route needs, "" if it needs none. There must be
// such a route.
func RoleOf(pattern string) provisioner.OperatorRole { return routes[pattern].role }

// Changes reports whether a route changes something, so that a request over
// HTTPS has to say why. There must be such a route.
func Changes(pattern string) bool { return routes[pattern].changes }

// login is who asks.
type login struct {
	by     string
	role   provisioner.OperatorRole
	remote bool // over HTTPS
}

type loginKey struct{}

func withLogin(ctx context.Context, l login) context.Context {
	return context.WithValue(ctx, loginKey{}, l)
}

// loginOf returns who asks; not ok if that is not known.
func loginOf(ctx context.Context) (l login, ok bool) {
	l, ok = ctx.Value(loginKey{}).(login)
	return l, ok
}

// by returns who asks, for events and history.
func by(ctx context.Context) string {
	l, _ := loginOf(ctx)
	return l.by
}

// raw serves a route of the table to those who may call it.
func (s *Server) raw(pattern string, serve http.HandlerFunc) {
	need, ok := routes[pattern]
	if !ok {
		panic(fmt.Sprintf("route %q is not in the table", pattern)) // of constants, so a test sees it
	}
	s.served[pattern] = true
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		l, known := loginOf(r.Context()) // by the socket
		if need.role != anybody && !known {
			var err error
			if l, err = s.authenticate(r); err != nil {
				p := problemOf(err)
				if p.Status == http.StatusUnauthorized {
					w.Header().Set("WWW-Authenticate", `Bearer realm="muster"`)
				}
				p.write(w)
				return
			}
			r = r.WithContext(withLogin(r.Context(), l))
		}
		if need.role != anybody && !l.role.Covers(need.role) {
			s.cfg.Log.WarnContext(r.Context(), "operator's request refused", "subject", subject(r), "by", l.by, "role", l.role, "needs", need.role)
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="muster", error="insufficient_scope", scope=%q`, need.role))
			(&Problem{Detail: fmt.Sprintf("%s is %s, and this needs %s", l.by, l.role, need.role), Status: http.StatusForbidden,
				Remedy: "ask an admin: `muster operator add` changes a role"}).write(w)
			return
		}
		serve(w, r)
	})
}

// authenticate says who sent a request over HTTPS: by the token if there is one,
// else by the certificate of the connection. Nothing else in it is believed.
func (s *Server) authenticate(r *http.Request) (login, error) {
	p := s.cfg.Provisioner
	var l *provisioner.Login
	var err error
	switch presented := r.Header.Values("Authorization"); {
	case len(presented) > 1:
		return login{}, badRequest(errors.New("several Authorization headers"))
	case len(presented) == 1:
		scheme, token, _ := strings.Cut(presented[0], " ")
		if !strings.EqualFold(scheme, "Bearer") { // RFC 9110 section 11.1: in any case
			return login{}, fmt.Errorf("%w: scheme %.20q, want Bearer", provisioner.ErrLogin, scheme)
		}
		l, err = p.LoginToken(r.Context(), strings.TrimLeft(token, " "), r.RemoteAddr)
	case r.TLS != nil && len(r.TLS.PeerCertificates) > 0:
		var between []*x509.Certificate
		between = append(between, r.TLS.PeerCertificates[1:]...)
		l, err = p.LoginCertificate(r.Context(), r.TLS.PeerCertificates[0], between, r.RemoteAddr)
	default:
		return login{}, fmt.Errorf("%w: none was shown", provisioner.ErrLogin)
	}
	if err != nil {
		return login{}, err
	}
	return login{by: l.By(), role: l.Role, remote: true}, nil
}

// reasoned is a request that says why.
type reasoned interface{ reason() string }

// errNoReason means that a change over HTTPS came without one.
var errNoReason = errors.New("why: missing: a change over HTTPS says why, for the history")

// checkReason reports that a change lacks its reason, or has one that cannot be kept. Those
// on the machine itself may be in a hurry that leaves no time for one.
func (s *Server) checkReason(r *http.Request, pattern string, q any) error {
	if !Changes(pattern) {
		return nil
	}
	why := ""
	if w, ok := q.(reasoned); ok {
		why = w.reason()
	}
	if l, _ := loginOf(r.Context()); l.remote && strings.TrimSpace(why) == "" {
		return badRequest(errNoReason)
	}
	if err := cause(r, why).Check(); err != nil {
		return badRequest(err)
	}
	return nil
}
