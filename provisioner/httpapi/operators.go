package httpapi

import (
	"net/http"

	"muster/provisioner/trust"

	"muster/provisioner/operate"
)

// An AddOperator is an operator to add.
type AddOperator struct {
	operate.NewOperator
	Why string `json:"why,omitempty"`
}

// A Self is the caller.
type Self struct {
	By   string             `json:"by"`
	Role trust.OperatorRole `json:"role"`
}

func operatorRoutes(s *Server) {
	operators := s.cfg.Orders.Operators
	get(s, viewer, "/v1/self", func(r *http.Request) (*Self, error) {
		l, _ := loginOf(r.Context())
		return &Self{By: l.by, Role: l.role}, nil
	})
	getList(s, viewer, "/v1/operators", func(r *http.Request) ([]operate.OperatorInfo, error) {
		return operators.List(r.Context())
	})
	change(s, admin, "/v1/operators",
		func(r *http.Request, q *AddOperator, c trust.Cause) (*operate.AddedOperator, error) {
			return operators.Add(r.Context(), q.NewOperator, c)
		})
	change(s, admin, "/v1/operators/{name}/remove", func(r *http.Request, _ *Reason, c trust.Cause) (*none, error) {
		return &none{}, operators.Remove(r.Context(), r.PathValue("name"), c)
	})
}
