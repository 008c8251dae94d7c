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

// reason implements reasoned.
func (a AddOperator) reason() string { return a.Why }

// A Self says who asks.
type Self struct {
	By   string                   `json:"by"`
	Role provisioner.OperatorRole `json:"role"`
}

func operatorRoutes(s *Server) {
	p := s.cfg.Provisioner
	route(s, "GET /v1/self", func(r *http.Request, _ *none) (*Self, error) {
		l, _ := loginOf(r.Context())
		return &Self{By: l.by, Role: l.role}, nil
	})
	route(s, "GET /v1/operators", func(r *http.Request, _ *none) ([]provisioner.OperatorInfo, error) {
		return p.ListOperators(r.Context())
	})
	route(s, "POST /v1/operators", func(r *http.Request, q *AddOperator) (*provisioner.AddedOperator, error) {
		return p.AddOperator(r.Context(), q.NewOperator, cause(r, q.Why))
	})
	route(s, "POST /v1/operators/{name}/remove", func(r *http.Request, q *Reason) (*none, error) {
		return &none{}, p.RemoveOperator(r.Context(), r.PathValue("name"), cause(r, q.Why))
	})
}
