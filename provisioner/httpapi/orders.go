package httpapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/operate"
	"muster/provisioner/orders"
	"muster/provisioner/trust"
)

// A NewGrant lets another key take an identity, once.
type NewGrant struct {
	provisioner.Precondition
	ID      string        `json:"id,omitempty"`       // identifies a repeated order
	KeyHash Limit         `json:"key_hash,omitempty"` // see [operate.GrantOrder]; needed while a key waits for the name
	TTL     time.Duration `json:"ttl_ns,omitempty"`
	OneTime bool          `json:"one_time,omitempty"` // see [operate.Nodes.OneTime]; excludes ID and KeyHash
	Why     string        `json:"why,omitempty"`
}

// A NewlyGranted is the answer to a [NewGrant].
type NewlyGranted struct {
	*orders.Grant

	Token string `json:"token,omitempty"` // the one-time token, which is shown only here
}

// A Change revokes or retires a node. It fails with [provisioner.ErrChanged] if the node has changed since the operator
// saw it, or [fleet.ErrHeard] if the node was seen after SeenBefore.
type Change struct {
	provisioner.Precondition
	Why        string    `json:"why,omitempty"`
	SeenBefore time.Time `json:"seen_before,omitzero"` // zero: no condition
	Awaiting   bool      `json:"awaiting,omitempty"`   // of a retirement: see [operate.Nodes.Clean]
}

func (s *Server) unheard(ctx context.Context, id wire.Identity, before time.Time) error {
	if before.IsZero() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readingTimeout)
	defer cancel()
	return s.cfg.Nodes.Unheard(ctx, id, before)
}

// A NodeCommand is a command to a node.
type NodeCommand struct {
	provisioner.Precondition
	ID    string      `json:"id,omitempty"`    // identifies a repeated command
	Token wire.Secret `json:"token,omitempty"` // text of the node's token, if the node enrolled with another one

	// Secret is the shared secret of a Choria server's token.
	Secret wire.Secret `json:"secret,omitempty"`

	Why string `json:"why,omitempty"`
}

// identity is checked by [Server.handle].
func identity(r *http.Request) wire.Identity { return wire.Identity(r.PathValue("identity")) }

func changeNode[Q, A any](s *Server, at scope, verb string,
	do func(context.Context, wire.Identity, *Q, trust.Cause) (A, error),
) {
	change(s, operator.on(at), "/v1/nodes/{identity}/"+verb, func(r *http.Request, q *Q, c trust.Cause) (A, error) {
		return do(r.Context(), identity(r), q, c)
	})
}

func orderRoutes(s *Server) {
	nodes := s.cfg.Orders.Nodes
	type takeBack = func(context.Context, wire.Identity, trust.Cause, ...provisioner.Precondition) error
	for verb, do := range map[string]takeBack{
		"revoke": nodes.Revoke,
		"retire": nodes.Retire,
	} {
		changeNode(s, ofNode, verb, func(
			ctx context.Context, id wire.Identity, q *Change, c trust.Cause,
		) (*none, error) {
			if err := s.unheard(ctx, id, q.SeenBefore); err != nil {
				return nil, err
			}
			if q.Awaiting && verb != "retire" {
				return nil, badRequest(errors.New("awaiting: only a retirement keeps the name"))
			}
			if q.Awaiting {
				return &none{}, nodes.Clean(ctx, id, c, q.Precondition)
			}
			return &none{}, do(ctx, id, c, q.Precondition)
		})
	}
	for _, verb := range wire.Verbs {
		changeNode(s, ofNode, string(verb),
			func(ctx context.Context, id wire.Identity, q *NodeCommand, c trust.Cause) (*operate.Obeyed, error) {
				o := operate.CommandOrder{ID: q.ID, Verb: verb, Token: q.Token, Secret: q.Secret, Seen: q.Precondition}
				return nodes.Command(ctx, id, o, c)
			})
	}
	changeNode(s, ofNode, "grant", func(
		ctx context.Context, id wire.Identity, q *NewGrant, c trust.Cause,
	) (*NewlyGranted, error) {
		if q.OneTime && (q.ID != "" || q.KeyHash != "") {
			return nil, badRequest(errors.New("one_time: with an id or a key: a one-time token has neither"))
		}
		if q.OneTime {
			token, g, err := nodes.OneTime(ctx, id, q.TTL, c, q.Precondition)
			return &NewlyGranted{g, token}, err
		}
		order := operate.GrantOrder{
			ID:      q.ID,
			KeyHash: wire.FoldHash(string(q.KeyHash)),
			TTL:     q.TTL,
			Seen:    q.Precondition,
		}
		g, err := nodes.Grant(ctx, id, order, c)
		return &NewlyGranted{Grant: g}, err
	})
	change(s, admin, "/v1/clock/accept", func(r *http.Request, _ *Reason, c trust.Cause) (*none, error) {
		return &none{}, s.cfg.Orders.Process.AcceptClock(r.Context(), c)
	})
}

// A NewAllowance is a new allow-list entry.
type NewAllowance struct {
	operate.AllowOrder
	Why string `json:"why,omitempty"`
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
		return list.Add(r.Context(), q.AllowOrder, c)
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
