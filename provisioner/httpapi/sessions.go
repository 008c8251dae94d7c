package httpapi

import (
	"net/http"
	"time"

	"muster/internal/wire"
	"muster/provisioner/orders"
	"muster/provisioner/trust"
)

// A LoginCode is what the console gave the browser for a waiting `muster login`, whose verifier proves that it asked.
type LoginCode struct {
	Code     wire.Secret `json:"code"`
	Verifier wire.Secret `json:"verifier"`
}

// A NewSession is a session for commands. The token is secret.
type NewSession struct {
	Self
	Token   string    `json:"token"`
	Expires time.Time `json:"expires"`
}

func sessionRoutes(s *Server) {
	getList(s, viewer, "/v1/sessions", func(*http.Request) ([]orders.Session, error) { return s.cfg.Login.Sessions() })
	change(s, admin, "/v1/sessions/{id}/end", func(r *http.Request, _ *Reason, c trust.Cause) (*none, error) {
		return &none{}, s.cfg.Login.End(r.Context(), r.PathValue("id"), c)
	})
	post(s, access{}, "/v1/login", func(r *http.Request, q *LoginCode, _ trust.Cause) (*NewSession, error) {
		l, token, err := s.cfg.Login.Redeem(r.Context(), string(q.Code), string(q.Verifier), r.RemoteAddr)
		if err != nil {
			return nil, err
		}
		return &NewSession{Self{l.By(), l.Role, l.Sites}, token, l.Expires}, nil
	})
}
