package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"muster/internal/paging"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/fleet"
)

// readingTimeout is how long a request waits for the index after a start; 100,000 records take two seconds.
const readingTimeout = 5 * time.Second

// clockSlack is how far an operator's clock may be ahead.
const clockSlack = 10 * time.Minute

func nodeRoutes(s *Server) {
	get(s, viewer, "/v1/nodes", func(r *http.Request) (*fleet.Page, error) {
		v, wrong := parameters(r, nodeParameters...)
		q, err := parseNodeQuery(v)
		if err = errors.Join(wrong, err); err == nil {
			err = q.Check()
		}
		if now := s.cfg.Now(); err == nil && q.SeenBefore.After(now.Add(clockSlack)) {
			err = fmt.Errorf("seen_before: %s is in the future (the time here is %s): every node would match",
				utc(q.SeenBefore), utc(now))
		}
		if err != nil {
			return nil, badRequest(err)
		}
		ctx, cancel := context.WithTimeout(r.Context(), readingTimeout)
		defer cancel()
		return s.cfg.Fleet.List(ctx, q)
	})
	getNode(s, "", func(r *http.Request, id wire.Identity) (*fleet.Report, error) {
		return s.cfg.Nodes.Report(r.Context(), id, s.cfg.Now().UTC())
	})
	getNode(s, "/history", func(r *http.Request, id wire.Identity) (*fleet.History, error) {
		return s.cfg.Nodes.History(r.Context(), id)
	})
	getNode(s, "/explain", func(r *http.Request, id wire.Identity) (*fleet.Explanation, error) {
		return s.cfg.Nodes.Explain(r.Context(), id, s.cfg.Now().UTC(), s.cfg.Provisioner.Forecast)
	})
}

func getNode[A any](s *Server, what string, answer func(*http.Request, wire.Identity) (A, error)) {
	get(s, viewer, "/v1/nodes/{identity}"+what, func(r *http.Request) (a A, err error) {
		id, err := identity(r)
		if err != nil {
			return a, err
		}
		return answer(r, id)
	})
}

var nodeParameters = []string{
	"state*", "site", "prefix", "match", "expires_before", "seen_before", "token", "policy", "fact*", "sort", "cursor",
	"limit", "faulty", "protocol",
}

// texts returns the query parameters that need no conversion.
func texts(q *fleet.Query) map[string]*string {
	return map[string]*string{
		"site":     (*string)(&q.Site),
		"prefix":   &q.Prefix,
		"match":    (*string)(&q.Match),
		"token":    (*string)(&q.Token),
		"policy":   &q.Policy,
		"sort":     (*string)(&q.Sort),
		"cursor":   &q.Cursor,
		"protocol": &q.Protocol,
	}
}

func instants(q *fleet.Query) map[string]*time.Time {
	return map[string]*time.Time{"expires_before": &q.ExpiresBefore, "seen_before": &q.SeenBefore}
}

// NodeQuery returns q as the query of GET /v1/nodes.
func NodeQuery(q fleet.Query) url.Values {
	v := url.Values{"fact": q.Facts}
	for _, s := range q.States {
		v.Add("state", string(s))
	}
	for name, text := range texts(&q) {
		if *text != "" {
			v.Set(name, *text)
		}
	}
	for name, t := range instants(&q) {
		if !t.IsZero() {
			v.Set(name, utc(*t))
		}
	}
	if q.Faulty {
		v.Set("faulty", "true")
	}
	if q.Limit != 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	return v
}

// parseNodeQuery is the inverse of [NodeQuery]. The error lists every parameter that cannot be parsed;
// [fleet.Query.Check] checks the values.
func parseNodeQuery(v url.Values) (q fleet.Query, err error) {
	var errs []error
	q.Facts = v["fact"]
	for _, s := range v["state"] {
		q.States = append(q.States, provisioner.State(s))
	}
	for name, text := range texts(&q) {
		*text = v.Get(name)
	}
	q.Match, q.Prefix = wire.Pattern(wire.FoldName(string(q.Match))), strings.ToLower(strings.TrimSpace(q.Prefix))
	for name, t := range instants(&q) {
		if s := v.Get(name); s != "" {
			if *t, err = time.Parse(time.RFC3339, s); err != nil {
				errs = append(errs, fmt.Errorf("%s: %.40q, want a time such as 2027-01-31T12:00:00Z", name, s))
			}
		}
	}
	q.Faulty, err = truth(v, "faulty")
	errs = append(errs, err)
	if s := v.Get("limit"); s != "" {
		if q.Limit, err = strconv.Atoi(s); err != nil || q.Limit < 1 {
			errs = append(errs, fmt.Errorf("limit: %.40q, want 1 to %d", s, paging.MaxLimit))
		}
	}
	return q, errors.Join(errs...)
}
