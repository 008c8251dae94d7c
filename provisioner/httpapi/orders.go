package httpapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"muster/internal/wire"
	"muster/provisioner"
)

// A NewGrant lets another key take an identity over, once.
type NewGrant struct {
	provisioner.Seen
	ID      string        `json:"id,omitempty"` // of the grant, when the order is repeated
	KeyHash Limit         `json:"key_hash,omitempty"`
	TTL     time.Duration `json:"ttl_ns,omitempty"`
	Why     string        `json:"why,omitempty"`
}

// reason implements reasoned.
func (c NodeCommand) reason() string { return c.Why }

// A Change revokes or retires a node. A node that is not as it was seen is left alone with [provisioner.ErrChanged],
// one that was heard of after SeenBefore with [fleet.ErrHeard].
type Change struct {
	provisioner.Seen
	Why        string    `json:"why,omitempty"`
	SeenBefore time.Time `json:"seen_before,omitzero"` // zero: whenever it was heard of
}

// reason implements reasoned.
func (c Change) reason() string { return c.Why }

// unheard returns an error if a node was heard of since it was chosen for its silence.
func (s *Server) unheard(ctx context.Context, id wire.Identity, before time.Time) error {
	if before.IsZero() {
		return nil
	}
	if s.cfg.Nodes == nil {
		return errNoFleet
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

func orderRoutes(s *Server) {
	p := s.cfg.Provisioner
	change := func(what string, do func(context.Context, wire.Identity, provisioner.Cause, ...provisioner.Seen) error) {
		route(s, "POST /v1/nodes/{identity}/"+what, func(r *http.Request, q *Change) (*none, error) {
			id, err := identity(r)
			if err == nil {
				err = s.unheard(r.Context(), id, q.SeenBefore)
			}
			if err != nil {
				return nil, err
			}
			return &none{}, do(r.Context(), id, cause(r, q.Why), q.Seen)
		})
	}
	change("revoke", p.RevokeNode)
	change("retire", p.RetireNode)
	for _, verb := range wire.Verbs {
		route(s, "POST /v1/nodes/{identity}/"+string(verb), func(r *http.Request, q *NodeCommand) (*provisioner.Obeyed, error) {
			id, err := identity(r)
			if err != nil {
				return nil, err
			}
			return p.CommandNode(r.Context(), id, provisioner.Order{ID: q.ID, Verb: verb, Token: q.Token, Seen: q.Seen}, cause(r, q.Why))
		})
	}
	route(s, "POST /v1/nodes/{identity}/grant", func(r *http.Request, q *NewGrant) (*provisioner.Grant, error) {
		id, err := identity(r)
		if err != nil {
			return nil, err
		}
		return p.GrantNode(r.Context(), id, provisioner.GrantOrder{ID: q.ID, KeyHash: string(q.KeyHash), TTL: q.TTL, Seen: q.Seen}, cause(r, q.Why))
	})
}

// errNoCRL means that the provisioner has just started.
var errNoCRL = errors.New("no certificate revocation list has been signed yet")

// clockRoute lets an operator end the refusals of a clock that seems to be behind.
func clockRoute(s *Server) {
	p := s.cfg.Provisioner
	route(s, "POST /v1/clock/accept", func(r *http.Request, q *Reason) (*none, error) {
		return &none{}, p.AcceptClock(r.Context(), cause(r, q.Why))
	})
}
