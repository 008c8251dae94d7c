package httpapi

import (
	"context"
	"net/http"
	"slices"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/operate"
	"muster/provisioner/orders"
	"muster/provisioner/trust"
)

// A scope returns an error unless a request is about what is at sites.
type scope func(*Server, *http.Request, trust.Sites) error

// scopes are the routes for operators with a limit to sites. Every other route that needs a role is refused to them.
var scopes = map[string]scope{
	"GET /v1/self":                                    inAnswer,
	"GET /v1/status":                                  inAnswer,
	"GET /v1/nodes":                                   inAnswer,
	"GET /v1/nodes/{identity}":                        ofNode,
	"GET /v1/nodes/{identity}/history":                ofNode,
	"GET /v1/nodes/{identity}/explain":                ofNode,
	"POST /v1/nodes/{identity}/revoke":                ofNode,
	"POST /v1/nodes/{identity}/retire":                ofNode,
	"POST /v1/nodes/{identity}/grant":                 ofNode,
	"POST /v1/nodes/{identity}/reconfigure":           ofNode,
	"POST /v1/nodes/{identity}/restart":               ofNode,
	"POST /v1/nodes/{identity}/reprovision":           ofNode,
	"POST /v1/nodes/{identity}/shutdown":              ofNode,
	"GET /v1/waiting":                                 inAnswer,
	"POST /v1/nodes/{identity}/approve":               inAnswer,
	"POST /v1/nodes/{identity}/reject":                inAnswer,
	"POST /v1/nodes/{identity}/forget":                inAnswer,
	"GET /v1/certificates":                            inAnswer,
	"GET /v1/certificates/{identity}/{name}":          ofNode,
	"POST /v1/certificates/{identity}/{name}/approve": ofNode,
	"POST /v1/certificates/{identity}/{name}/reject":  ofNode,
	"POST /v1/certificates/{identity}/{name}/revoke":  ofNode,
	"GET /v1/tokens":                                  inAnswer,
	"GET /v1/tokens/{tid}":                            ofToken,
	"POST /v1/tokens/{tid}/revoke":                    ofToken,
	"POST /v1/tokens/{tid}/release":                   ofToken,
	"GET /v1/events":                                  inAnswer,
}

// inAnswer is for routes that show or change no more than what is at the sites.
func inAnswer(*Server, *http.Request, trust.Sites) error { return nil }

func ofNode(s *Server, r *http.Request, sites trust.Sites) error {
	id, err := identity(r)
	if err != nil {
		return err
	}
	return s.cfg.Orders.Nodes.Within(r.Context(), sites, id)
}

func ofToken(s *Server, r *http.Request, sites trust.Sites) error {
	return s.cfg.Orders.Tokens.Within(r.Context(), sites, jwt.TokenID(r.PathValue("tid")))
}

func (s *Server) within(pattern string, r *http.Request, sites trust.Sites) error {
	if check := scopes[pattern]; check != nil {
		return check(s, r, sites)
	}
	return operate.ErrOtherSite
}

// sitesOf returns the limit of the caller, or nil.
func sitesOf(ctx context.Context) trust.Sites {
	l, _ := loginOf(ctx)
	return l.Sites
}

// statusAt is the status for an operator with a limit to sites: it has nothing of provisioners.
func (s *Server) statusAt(ctx context.Context, sites trust.Sites, now *Status) error {
	now.Activity.Refused = map[wire.Code]int{}
	now.Pauses = slices.DeleteFunc(now.Pauses, func(p *orders.Pause) bool { return p.Site != "" && !sites.Has(p.Site) })
	waiting, err := s.cfg.Orders.Keys.Waiting(ctx, "")
	for _, w := range waiting {
		if sites.Has(w.Site) {
			now.Waiting++
		}
	}
	return err
}
