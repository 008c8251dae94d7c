package httpapi

import (
	"context"
	"net/http"
	"time"

	"muster/provisioner/orders"

	"muster/provisioner/trust"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/operate"
)

// A NewGrant lets another key take an identity over, once.
type NewGrant struct {
	provisioner.Seen
	ID      string        `json:"id,omitempty"` // of the grant, when the order is repeated
	KeyHash Limit         `json:"key_hash,omitempty"`
	TTL     time.Duration `json:"ttl_ns,omitempty"`
	Why     string        `json:"why,omitempty"`
}

// A Change revokes or retires a node. A node that is not as it was seen is left alone with [provisioner.ErrChanged],
// one that was heard of after SeenBefore with [fleet.ErrHeard].
type Change struct {
	provisioner.Seen
	Why        string    `json:"why,omitempty"`
	SeenBefore time.Time `json:"seen_before,omitzero"` // zero: whenever it was heard of
}

// unheard returns an error if a node was heard of since it was chosen for its silence.
func (s *Server) unheard(ctx context.Context, id wire.Identity, before time.Time) error {
	if before.IsZero() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readingTimeout)
	defer cancel()
	return s.cfg.Nodes.Unheard(ctx, id, before)
}

// A NodeCommand has a node do something.
type NodeCommand struct {
	provisioner.Seen
	ID    string      `json:"id,omitempty"`    // of the command, when it is repeated
	Token wire.Secret `json:"token,omitempty"` // text of the token that the node has, if not the one on record
	Why   string      `json:"why,omitempty"`
}

// identity returns the identity in the path.
func identity(r *http.Request) (wire.Identity, error) {
	id, err := wire.ParseIdentity(r.PathValue("identity"))
	if err != nil {
		return "", badRequest(err)
	}
	return id, nil
}

// changeNode serves an order about one node.
func changeNode[Q, A any](s *Server, verb string,
	do func(context.Context, wire.Identity, *Q, trust.Cause) (A, error),
) {
	change(s, operator, "/v1/nodes/{identity}/"+verb, func(r *http.Request, q *Q, c trust.Cause) (a A, err error) {
		id, err := identity(r)
		if err != nil {
			return a, err
		}
		return do(r.Context(), id, q, c)
	})
}

func orderRoutes(s *Server) {
	nodes := s.cfg.Orders.Nodes
	for verb, do := range map[string]func(context.Context, wire.Identity, trust.Cause, ...provisioner.Seen) error{
		"revoke": nodes.Revoke,
		"retire": nodes.Retire,
	} {
		changeNode(s, verb, func(ctx context.Context, id wire.Identity, q *Change, c trust.Cause) (*none, error) {
			if err := s.unheard(ctx, id, q.SeenBefore); err != nil {
				return nil, err
			}
			return &none{}, do(ctx, id, c, q.Seen)
		})
	}
	for _, verb := range wire.Verbs {
		changeNode(s, string(verb), func(ctx context.Context, id wire.Identity, q *NodeCommand, c trust.Cause) (*operate.Obeyed, error) {
			return nodes.Command(ctx, id, operate.CommandOrder{ID: q.ID, Verb: verb, Token: q.Token, Seen: q.Seen}, c)
		})
	}
	changeNode(s, "grant", func(ctx context.Context, id wire.Identity, q *NewGrant, c trust.Cause) (*orders.Grant, error) {
		order := operate.GrantOrder{ID: q.ID, KeyHash: string(q.KeyHash), TTL: q.TTL, Seen: q.Seen}
		return nodes.Grant(ctx, id, order, c)
	})
	change(s, admin, "/v1/clock/accept", func(r *http.Request, _ *Reason, c trust.Cause) (*none, error) {
		return &none{}, s.cfg.Orders.Process.AcceptClock(r.Context(), c)
	})
}
