package httpapi

import (
	"net/http"

	"muster/provisioner"
)

// An AddOperator is an operator who is to be added.
type AddOperator struct {
	provisioner.NewOperator
	Why string `json:"why,omitempty"`
}

// A Self says who asks.
type Self struct {
	By   string                   `json:"by"`
	Role provisioner.OperatorRole `json:"role"`
}

func operatorRoutes(s *Server) {
	p := s.cfg.Provisioner
	get(s, viewer, "/v1/self", func(r *http.Request) (*Self, error) {
		l, _ := loginOf(r.Context())
		return &Self{By: l.by, Role: l.role}, nil
	})
	get(s, viewer, "/v1/operators", func(r *http.Request) ([]provisioner.OperatorInfo, error) {
		return p.ListOperators(r.Context())
	})
	change(s, admin, "/v1/operators", func(r *http.Request, q *AddOperator, c provisioner.Cause) (*provisioner.AddedOperator, error) {
		return p.AddOperator(r.Context(), q.NewOperator, c)
	})
	change(s, admin, "/v1/operators/{name}/remove", func(r *http.Request, _ *Reason, c provisioner.Cause) (*none, error) {
		return &none{}, p.RemoveOperator(r.Context(), r.PathValue("name"), c)
	})
}
