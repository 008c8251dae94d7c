package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"muster/provisioner/facts"
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

func (v *NewVerdict) of(id wire.Identity) operate.KeyChoice {
	return operate.KeyChoice{Identity: id, Key: wire.FoldHash(string(v.Key)), Shown: v.Waiting}
}

// A WaitingFilter selects waiting keys by the name, site, token and facts of a node filter, and by address.
type WaitingFilter struct {
	fleet.Filter
	From string // address or range, such as 192.0.2.0/24
}

// IsZero reports whether it selects every key.
func (f *WaitingFilter) IsZero() bool { return f.From == "" && f.Filter.IsZero() }

// Query returns the filter as query parameters.
func (f *WaitingFilter) Query() url.Values {
	v := NodeQuery(fleet.Query{Filter: f.Filter})
	if f.From != "" {
		v.Set("from", f.From)
	}
	return v
}

// Compile returns the filter as a function, or every fault of the filter.
func (f *WaitingFilter) Compile() (func(*waiting.Key) bool, error) {
	err := (&fleet.Query{Filter: f.Filter}).Check()
	var within netip.Prefix
	if f.From != "" {
		var wrong error
		within, wrong = rangeOf(f.From)
		err = errors.Join(err, wrong)
	}
	var wanted []facts.Filter
	for _, text := range f.Facts {
		want, _ := facts.ParseFilter(text) // checked
		wanted = append(wanted, want)
	}
	return func(w *waiting.Key) bool {
		at, _ := netip.ParseAddr(w.Source)
		return f.matches(w.Identity) && (f.Site == "" || w.Site == f.Site) && (f.Token == "" || w.Token == f.Token) &&
			(f.From == "" || within.Contains(at.Unmap())) &&
			!slices.ContainsFunc(wanted, func(want facts.Filter) bool {
				shown, has := w.Facts[want.Name]
				return !has || !want.Match(shown)
			})
	}, err
}

func (f *WaitingFilter) matches(id wire.Identity) bool {
	return strings.HasPrefix(string(id), f.Prefix) && (f.Match == "" || f.Match.Match(id))
}

func rangeOf(text string) (netip.Prefix, error) {
	if at, err := netip.ParseAddr(text); err == nil {
		at = at.Unmap()
		return netip.PrefixFrom(at, at.BitLen()), nil
	}
	within, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf(
			"from: address %.80q, want an address such as 192.0.2.1, or a range such as 192.0.2.0/24", text)
	}
	return within.Masked(), nil
}

func waitingRoutes(s *Server) {
	keys := s.cfg.Orders.Keys
	get(s, viewer, "/v1/waiting", func(r *http.Request) (*Pending, error) {
		v, wrong := parameters(r, "prefix", "match", "site", "token", "from", "fact*")
		q, _ := parseNodeQuery(v) // the other parameters do not exist here
		filter := WaitingFilter{Filter: q.Filter, From: v.Get("from")}
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
		answer.Sources = sourcesOf(answer.Waiting)
		for _, a := range keys.Rejected() {
			// A rejected key is no longer on the list: only its name can match.
			if filter.matches(a.Identity) {
				answer.Rejected = append(answer.Rejected, a)
			}
		}
		return answer, nil
	})
	changeNode(s, "approve", func(
		ctx context.Context, id wire.Identity, q *NewVerdict, c trust.Cause,
	) (*orders.Answer, error) {
		return keys.Approve(ctx, q.of(id), q.TTL, c)
	})
	changeNode(s, "reject", func(
		ctx context.Context, id wire.Identity, q *NewVerdict, c trust.Cause,
	) (*orders.Answer, error) {
		return keys.Reject(ctx, q.of(id), c)
	})
	changeNode(s, "forget", func(
		ctx context.Context, id wire.Identity, q *NewVerdict, c trust.Cause,
	) (*orders.Answer, error) {
		return keys.Forget(ctx, q.of(id), c)
	})
}
