package httpapi

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"muster/provisioner/fleet"
	"muster/provisioner/waiting"

	"muster/provisioner/orders"

	"muster/provisioner/trust"

	"muster/internal/limit"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/operate"
)

// Pending is the pending list.
type Pending struct {
	Waiting  []*waiting.Key   `json:"waiting"`  // longest first
	Sources  []*PendingSource `json:"sources"`  // of the waiting keys; the one with most keys first
	Rejected []*orders.Answer `json:"rejected"` // oldest first
}

// PendingSource counts the waiting keys of an address, of which [waiting.MaxPerSource] is the limit.
type PendingSource struct {
	Source string        `json:"source"` // address, or the /64 of an IPv6 address
	Keys   int           `json:"keys"`
	Tokens []jwt.TokenID `json:"tids"`
}

func sourcesOf(keys []*waiting.Key) []*PendingSource {
	of, list := make(map[netip.Prefix]*PendingSource), []*PendingSource{}
	for _, w := range keys {
		source := limit.Source(w.Source)
		s := of[source]
		if s == nil {
			s = &PendingSource{Source: limit.SourceName(source, w.Source)}
			of[source], list = s, append(list, s)
		}
		s.Keys++
		if !slices.Contains(s.Tokens, w.Token) {
			s.Tokens = append(s.Tokens, w.Token)
		}
	}
	slices.SortStableFunc(list, func(a, b *PendingSource) int { return b.Keys - a.Keys })
	return list
}

// A NewVerdict is an operator's verdict about a waiting key.
type NewVerdict struct {
	// SHA-256 in hex, or 8 digits or more of it; needed if several keys wait
	Key Limit         `json:"key,omitempty"`
	TTL time.Duration `json:"ttl_ns,omitempty"` // of an approval; 0: 24 h
	Why string        `json:"why,omitempty"`

	// Waiting: Key is a whole hash from the pending list. If the key was rejected since, the order fails. A provisioner
	// of an older version refuses the request.
	Waiting bool `json:"waiting,omitempty"`
}

func (v *NewVerdict) of(ctx context.Context, id wire.Identity) operate.KeyChoice {
	return operate.KeyChoice{
		Identity: id,
		Key:      wire.FoldHash(string(v.Key)),
		Shown:    v.Waiting,
		Sites:    sitesOf(ctx),
	}
}

func waitingRoutes(s *Server) {
	keys := s.cfg.Orders.Keys
	get(s, viewer.on(inAnswer), "/v1/waiting", func(r *http.Request) (*Pending, error) {
		v, wrong := parameters(r, fleet.PendingParameters...)
		filter, err := fleet.ParsePending(v)
		if err = errors.Join(wrong, err); err != nil {
			return nil, badRequest(err)
		}
		filter.Sites = sitesOf(r.Context())
		all, err := keys.Waiting(r.Context(), "")
		if err != nil {
			return nil, err
		}
		answer := &Pending{Waiting: []*waiting.Key{}, Rejected: []*orders.Answer{}}
		for _, w := range all {
			if filter.Selects(w) {
				answer.Waiting = append(answer.Waiting, w)
			}
		}
		answer.Sources = sourcesOf(answer.Waiting)
		for _, a := range keys.Rejected() {
			if filter.SelectsName(a.Identity) && filter.Sites.Has(a.Site) {
				answer.Rejected = append(answer.Rejected, a)
			}
		}
		return answer, nil
	})
	changeNode(s, inAnswer, "approve", func(
		ctx context.Context, id wire.Identity, q *NewVerdict, c trust.Cause,
	) (*orders.Answer, error) {
		return keys.Approve(ctx, q.of(ctx, id), q.TTL, c)
	})
	changeNode(s, inAnswer, "reject", func(
		ctx context.Context, id wire.Identity, q *NewVerdict, c trust.Cause,
	) (*orders.Answer, error) {
		return keys.Reject(ctx, q.of(ctx, id), c)
	})
	changeNode(s, inAnswer, "forget", func(
		ctx context.Context, id wire.Identity, q *NewVerdict, c trust.Cause,
	) (*orders.Answer, error) {
		return keys.Forget(ctx, q.of(ctx, id), c)
	})
}
