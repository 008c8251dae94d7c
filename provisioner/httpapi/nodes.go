package httpapi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/fleet"
)

// readingTimeout is how long who asks a provisioner that has just started waits for
// it to have read all records; chosen, 100,000 take about two seconds.
const readingTimeout = 5 * time.Second

// clockSlack is how far an operator's clock may be ahead; chosen, more than clocks differ
// that anybody sets.
const clockSlack = 10 * time.Minute

// errNoFleet means that this provisioner was made without an index of nodes.
var errNoFleet = &Problem{Detail: "this provisioner lists no nodes", Status: http.StatusNotFound}

// nodeRoutes are what operators ask about nodes. They change nothing.
func nodeRoutes(s *Server) {
	x := s.cfg.Fleet
	route(s, "GET /v1/nodes", func(r *http.Request, _ *none) (*fleet.Page, error) {
		if x == nil {
			return nil, errNoFleet
		}
		v, wrong := parameters(r, nodeParameters...)
		q, err := parseNodeQuery(v)
		if err = errors.Join(wrong, err); err == nil {
			err = q.Check()
		}
		if now := s.cfg.Now(); err == nil && q.SeenBefore.After(now.Add(clockSlack)) {
			err = fmt.Errorf("seen_before: %s is to come, it is %s here: by then nobody was heard of, and all would fit", utc(q.SeenBefore), utc(now))
		}
		if err != nil {
			return nil, badRequest(err)
		}
		ctx, cancel := context.WithTimeout(r.Context(), readingTimeout)
		defer cancel()
		return x.List(ctx, q)
	})
	about(s, "", func(r *http.Request, id wire.Identity) (*fleet.Report, error) {
		return s.cfg.Nodes.Report(r.Context(), id, s.cfg.Now().UTC())
	})
	about(s, "/history", func(r *http.Request, id wire.Identity) (*fleet.Past, error) { return s.cfg.Nodes.Past(r.Context(), id) })
	about(s, "/explain", func(r *http.Request, id wire.Identity) (*fleet.Explanation, error) {
		return s.cfg.Nodes.Explain(r.Context(), id, s.cfg.Now().UTC(), s.cfg.Provisioner.Foresee)
	})
}

// about serves a question about one node.
func about[A any](s *Server, what string, answer func(*http.Request, wire.Identity) (A, error)) {
	route(s, "GET /v1/nodes/{identity}"+what, func(r *http.Request, _ *none) (A, error) {
		if s.cfg.Nodes == nil {
			return *new(A), errNoFleet
		}
		id, err := identity(r)
		if err != nil {
			return *new(A), err
		}
		return answer(r, id)
	})
}

// nodeParameters are those of the list.
var nodeParameters = []string{
	"state*", "site", "prefix", "match", "expires_before", "seen_before", "token", "policy", "fact*", "sort", "cursor", "limit",
}

// NodeQuery returns the query part of GET /v1/nodes that asks for q.
func NodeQuery(q fleet.Query) url.Values {
	v := make(url.Values)
	set := func(name, value string) {
		if value != "" {
			v.Add(name, value)
		}
	}
	for _, s := range q.States {
		set("state", string(s))
	}
	set("site", string(q.Site))
	set("prefix", q.Prefix)
	set("match", string(q.Match))
	for name, t := range map[string]time.Time{"expires_before": q.ExpiresBefore, "seen_before": q.SeenBefore} {
		if !t.IsZero() {
			set(name, t.UTC().Format(time.RFC3339))
		}
	}
	set("token", string(q.Token))
	set("policy", q.Policy)
	for _, f := range q.Facts {
		set("fact", f)
	}
	set("sort", string(q.Sort))
	set("cursor", q.Cursor)
	if q.Limit != 0 {
		set("limit", strconv.Itoa(q.Limit))
	}
	return v
}

// parseNodeQuery is the inverse of [NodeQuery], for what [parameters] returns. The error names
// everything that cannot be read; what the values are worth is for [fleet.Query.Check].
func parseNodeQuery(v url.Values) (q fleet.Query, err error) {
	var errs []error
	instant := func(name string, into *time.Time) func(string) {
		return func(s string) {
			t, err := time.Parse(time.RFC3339, s)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %.40q, want an instant such as 2027-01-31T12:00:00Z", name, s))
			}
			*into = t
		}
	}
	read := map[string]func(string){
		"state":          func(s string) { q.States = append(q.States, provisioner.State(s)) },
		"site":           func(s string) { q.Site = jwt.Site(s) },
		"prefix":         func(s string) { q.Prefix = s },
		"match":          func(s string) { q.Match = wire.Pattern(s) },
		"expires_before": instant("expires_before", &q.ExpiresBefore),
		"seen_before":    instant("seen_before", &q.SeenBefore),
		"token":          func(s string) { q.Token = jwt.TokenID(s) },
		"policy":         func(s string) { q.Policy = s },
		"fact":           func(s string) { q.Facts = append(q.Facts, s) },
		"sort":           func(s string) { q.Sort = fleet.Order(s) },
		"cursor":         func(s string) { q.Cursor = s },
		"limit": func(s string) {
			n, err := strconv.Atoi(s)
			if err != nil || n < 1 {
				errs = append(errs, fmt.Errorf("limit: %.40q, want 1 to %d", s, fleet.MaxLimit))
			}
			q.Limit = n
		},
	}
	for _, name := range slices.Sorted(maps.Keys(read)) {
		for _, s := range v[name] {
			read[name](s)
		}
	}
	return q, errors.Join(errs...)
}
