package httpapi

import (
	"net/http"
	"time"

	"muster/provisioner/orders"

	"muster/provisioner/trust"

	"muster/internal/wire"
	"muster/provisioner/operate"
)

// A NewAllowance is a new allow-list entry.
type NewAllowance struct {
	Pattern    string        `json:"pattern"`
	Expires    time.Duration `json:"expires_ns,omitempty"` // from now; 0: never
	Everything bool          `json:"everything,omitempty"` // allows a lone *
	Why        string        `json:"why,omitempty"`
}

// An OldAllowance is an entry to remove.
type OldAllowance struct {
	Pattern string `json:"pattern"`
	Why     string `json:"why,omitempty"`
}

// An AllowImport is the complete list of one source.
type AllowImport struct {
	operate.List
	DryRun bool   `json:"dry_run,omitempty"` // only report the changes
	Why    string `json:"why,omitempty"`
}

func allowRoutes(s *Server) {
	list := s.cfg.Orders.AllowList
	getList(s, viewer, "/v1/allow", func(r *http.Request) ([]*orders.Allowance, error) {
		return list.List(r.Context())
	})
	change(s, operator, "/v1/allow", func(r *http.Request, q *NewAllowance, c trust.Cause) (*orders.Allowance, error) {
		return list.Add(r.Context(), q.Pattern, q.Expires, q.Everything, c)
	})
	change(s, operator, "/v1/allow/import",
		func(r *http.Request, q *AllowImport, c trust.Cause) (*operate.Imported, error) {
			return list.Import(r.Context(), q.List, q.DryRun, c)
		})
	// The body holds the pattern, since some patterns cannot be in a path.
	change(s, operator, "/v1/allow/remove", func(r *http.Request, q *OldAllowance, c trust.Cause) (*none, error) {
		return &none{}, list.Remove(r.Context(), wire.Pattern(q.Pattern), c)
	})
}
