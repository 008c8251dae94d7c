package httpapi

import (
	"context"
	"net/http"
	"slices"

	"muster/jwt"
	"muster/provisioner/operate"
	"muster/provisioner/orders"
	"muster/provisioner/trust"
)

// A scope returns an error unless a request is about what is at sites.
type scope func(*Server, *http.Request, trust.Sites) error

func (a access) on(at scope) access {
	a.at = at
	return a
}

// inAnswer is for routes that show or change no more than what is at the sites.
func inAnswer(*Server, *http.Request, trust.Sites) error { return nil }

func ofNode(s *Server, r *http.Request, sites trust.Sites) error {
	return s.cfg.Orders.Nodes.Within(r.Context(), sites, identity(r))
}

func ofToken(s *Server, r *http.Request, sites trust.Sites) error {
	return s.cfg.Orders.Tokens.Within(r.Context(), sites, jwt.TokenID(r.PathValue("tid")))
}

func (s *Server) within(at scope, r *http.Request, sites trust.Sites) error {
	switch {
	case sites == nil:
		return nil
	case at == nil:
		return operate.ErrOtherSite
	}
	return at(s, r, sites)
}

func sitesOf(ctx context.Context) trust.Sites {
	l, _ := loginOf(ctx)
	return l.Sites
}

// statusAt is the status for an operator with a limit to sites: it has nothing of provisioners.
func (s *Server) statusAt(ctx context.Context, sites trust.Sites, now *Status) error {
	now.Pauses = slices.DeleteFunc(now.Pauses, func(p *orders.Pause) bool { return p.Site != "" && !sites.Has(p.Site) })
	waiting, err := s.cfg.Orders.Keys.Waiting(ctx, "")
	for _, w := range waiting {
		if sites.Has(w.Site) {
			now.Waiting++
		}
	}
	return err
}
