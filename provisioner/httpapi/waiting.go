package httpapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"muster/provisioner/waiting"

	"muster/provisioner/orders"

	"muster/provisioner/trust"

	"muster/internal/wire"
	"muster/provisioner/operate"
)

// Pending is who waits, and who was rejected.
type Pending struct {
	Waiting  []*waiting.Key   `json:"waiting"`  // the longest first
	Rejected []*orders.Answer `json:"rejected"` // the oldest first
}

// A NewVerdict is an operator's verdict about a key that waits.
type NewVerdict struct {
	Key Limit         `json:"key,omitempty"`    // hash of the key or its first 8 digits or more; needed where several wait
	TTL time.Duration `json:"ttl_ns,omitempty"` // of an approval; 0 is 24 h
	Why string        `json:"why,omitempty"`

	// Waiting is for a key, given by its whole hash, that was on the list of those who wait: a
	// rejection since then stays, and is an error. A provisioner that does not know it refuses.
	Waiting bool `json:"waiting,omitempty"`
}

// of is the key that is meant.
func (v *NewVerdict) of(id wire.Identity) operate.KeyChoice {
	return operate.KeyChoice{Identity: id, Key: string(v.Key), Shown: v.Waiting}
}

// waitingRoutes serves who waits, as a [WaitingFilter] in the query selects, and
// takes verdicts.
func waitingRoutes(s *Server) {
	keys := s.cfg.Orders.Keys
	get(s, viewer, "/v1/waiting", func(r *http.Request) (*Pending, error) {
		v, wrong := parameters(r, "prefix", "name*", "site", "token", "from", "fact*")
		filter := waitingFilterOf(v)
		meant, err := filter.Compile()
		if err = errors.Join(wrong, err); err != nil {
			return nil, badRequest(err)
		}
		all, err := keys.Waiting(r.Context(), "")
		if err != nil {
			return nil, err
		}
		answer := &Pending{Waiting: []*waiting.Key{}, Rejected: []*orders.Answer{}}
		for _, w := range all {
			if meant(w) {
				answer.Waiting = append(answer.Waiting, w)
			}
		}
		for _, a := range keys.Rejected() {
			// What it presented is no longer known; by names it can be told.
			if filter.matches(a.Identity) {
				answer.Rejected = append(answer.Rejected, a)
			}
		}
		return answer, nil
	})
	changeNode(s, "approve", func(ctx context.Context, id wire.Identity, q *NewVerdict, c trust.Cause) (*orders.Answer, error) {
		return keys.Approve(ctx, q.of(id), q.TTL, c)
	})
	changeNode(s, "reject", func(ctx context.Context, id wire.Identity, q *NewVerdict, c trust.Cause) (*orders.Answer, error) {
		return keys.Reject(ctx, q.of(id), c)
	})
	changeNode(s, "forget", func(ctx context.Context, id wire.Identity, q *NewVerdict, c trust.Cause) (*orders.Answer, error) {
		return keys.Forget(ctx, q.of(id), c)
	})
}
