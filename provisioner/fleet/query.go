package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"muster/internal/paging"
	"muster/internal/span"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/trust"
)

var states = []provisioner.State{
	provisioner.StateEnrolled, provisioner.StateProvisioned, provisioner.StateRevoked, provisioner.StateRetired,
}

// A Filter selects the nodes that meet all conditions. The zero value selects every node on record.
type Filter struct {
	States        []provisioner.State // any of them
	Site          jwt.Site
	Sites         trust.Sites     // the operator's; see [trust.Sites.Has]
	Protocol      string          // one of [provisioner.Protocols]
	Prefix        string          // of the name
	Match         wire.Pattern    // the name
	ExpiresBefore time.Time       // end of the certificate
	SeenBefore    time.Time       // last seen before, or never
	Connected     ConnectionState // "": any; selects only nodes in the fleet with muster's agent
	LinkBefore    time.Time       // its connection began or ended before
	Token         jwt.TokenID
	Policy        string // a prefix of the digest
	Faulty        bool   // the node reports a fault

	// Facts are NAME=VALUE with * and ? in VALUE; an empty VALUE selects nodes without this fact. Only kept facts can
	// be used, see [ErrFact].
	Facts []string

	searched
}

// A Query asks for a page of a list.
type Query struct {
	Filter
	paging.Query
}

// Parameters are the parameters of [ParseQuery]. A trailing * allows repetition.
var Parameters = []string{
	"state*", "site", "prefix", "match", "expires_before", "seen_before", "token", "policy", "fact*", "sort", "cursor",
	"limit", "faulty", "protocol", "connected", "for",
}

// clockSlack is how far an operator's clock may be ahead.
const clockSlack = 10 * time.Minute

// ParseQuery reads a query of the API, the console or a command. The error lists every mistake.
func ParseQuery(v url.Values, now time.Time) (Query, error) {
	p := paging.Parameters{Values: v, Now: now}
	q := Query{Query: p.Page(), Filter: Filter{
		Site:          jwt.Site(v.Get("site")),
		Protocol:      v.Get("protocol"),
		Prefix:        strings.ToLower(strings.TrimSpace(v.Get("prefix"))),
		Match:         wire.Pattern(wire.FoldName(v.Get("match"))),
		ExpiresBefore: p.Time("expires_before", span.ParseTime),
		SeenBefore:    p.Time("seen_before", span.ParsePast),
		Connected:     ConnectionState(v.Get("connected")),
		LinkBefore:    p.Time("for", span.ParsePast),
		Token:         jwt.TokenID(v.Get("token")),
		Policy:        v.Get("policy"),
		Faulty:        p.True("faulty"),
		Facts:         p.Texts("fact"),
	}}
	for _, s := range p.Texts("state") {
		q.States = append(q.States, provisioner.State(s))
	}
	if q.SeenBefore.After(now.Add(clockSlack)) {
		p.Wrong("seen_before", fmt.Errorf("%s is in the future, and every node would match (the time here is %s)",
			stamp(q.SeenBefore), stamp(now)))
	}
	return q, p.Err(q.Check())
}

// A Page is a part of a list. The pages by Next list each unchanged node exactly once. A node that changes may be
// repeated or missing, unless the list is sorted by name.
type Page struct {
	Nodes []Node `json:"nodes"`
	Next  string `json:"next,omitempty"` // cursor; empty: last page

	// Total and States count all selected nodes.
	Total  int                       `json:"total"`
	States map[provisioner.State]int `json:"states"`
}

// Check reports every fault of the query.
func (q *Query) Check() error {
	var errs []error
	for _, s := range q.States {
		if !slices.Contains(states, s) {
			errs = append(errs, fmt.Errorf("state: %.40q, want enrolled, provisioned, revoked or retired", s))
		}
	}
	if q.Site != "" {
		if _, err := jwt.ParseSite(string(q.Site)); err != nil {
			errs = append(errs, fmt.Errorf("site: %w", err))
		}
	}
	if q.Protocol != "" && !slices.Contains(provisioner.Protocols, q.Protocol) {
		errs = append(errs, fmt.Errorf("protocol: %.40q, want one of %q", q.Protocol, provisioner.Protocols))
	}
	if !slices.Contains([]ConnectionState{"", Yes, No, Unknown}, q.Connected) {
		errs = append(errs, fmt.Errorf("connected: %.40q, want yes, no or unknown", q.Connected))
	}
	if strings.Trim(q.Prefix, "abcdefghijklmnopqrstuvwxyz0123456789-.") != "" {
		errs = append(errs, fmt.Errorf("prefix: %.80q, want only a-z, 0-9, - and dots", q.Prefix))
	}
	if strings.Trim(q.Policy, "0123456789abcdef") != "" || len(q.Policy) > 64 {
		errs = append(errs, fmt.Errorf("policy: %.80q, want 1 to 64 lower-case hex digits of the policy's digest",
			q.Policy))
	}
	if q.Match != "" {
		if _, err := wire.ParsePattern(string(q.Match)); err != nil {
			errs = append(errs, fmt.Errorf("match: %w", err))
		}
	}
	if q.Token != "" {
		if err := trust.CheckTokenID(q.Token); err != nil {
			errs = append(errs, fmt.Errorf("token: %w", err))
		}
	}
	_, err := parseFacts(q.Facts)
	errs = append(errs, err)
	return errors.Join(append(errs, q.Query.Check())...)
}

// List returns a page once the index is read. The error is [ErrReading] if ctx ends first, [ErrHeard] if SeenBefore is
// too long ago, [paging.ErrCursor], [ErrFact], or that of [Query.Check].
func (x *Index) List(ctx context.Context, q Query) (*Page, error) {
	if err := q.Check(); err != nil {
		return nil, err
	}
	facts, err := x.askedFacts(q.Facts)
	if err != nil {
		return nil, err
	}
	x.log.Settle()
	read := []<-chan struct{}{x.current}
	if !q.SeenBefore.IsZero() {
		read = append(read, x.heard)
	}
	if err := x.wait(ctx, read...); err != nil {
		return nil, err
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	p := &Page{States: make(map[provisioner.State]int)}
	if !q.SeenBefore.IsZero() && !q.SeenBefore.After(x.since) {
		return nil, notKept(x.since)
	}
	listed, next, err := paging.Cut(q.Query, func(yield func(*node) bool) {
		for i := range x.nodes {
			n := &x.nodes[i]
			if !x.selects(&q.Filter, n, facts) {
				continue
			}
			p.Total++
			p.States[x.of(n).State]++
			if !yield(n) {
				return
			}
		}
	}, func(n *node) paging.Row { return x.row(n, q.Sort) })
	if err != nil {
		return nil, err
	}
	p.Next, p.Nodes = next, make([]Node, 0, len(listed))
	for _, n := range listed {
		p.Nodes = append(p.Nodes, x.shown(n))
	}
	return p, nil
}

// selects requires mu.
func (x *Index) selects(f *Filter, n *node, facts []askedFact) bool {
	s := x.of(n)
	switch {
	case !n.recorded(),
		len(f.States) > 0 && !slices.Contains(f.States, s.State),
		f.Site != "" && s.Site != f.Site,
		!f.Sites.Has(s.Site),
		f.Protocol != "" && s.Protocol.String() != f.Protocol,
		f.Token != "" && x.tokens.values[n.token] != f.Token,
		!strings.HasPrefix(s.Policy, f.Policy),
		f.Faulty && s.Fault == "",
		!strings.HasPrefix(string(n.id), f.Prefix),
		!f.ExpiresBefore.IsZero() && (n.expires == 0 || !instant(n.expires).Before(f.ExpiresBefore)),
		(f.Connected != "" || !f.LinkBefore.IsZero()) && !f.linked(x.liveness(n)),
		!f.SeenBefore.IsZero() && !instant(x.heardOf(n)).Before(f.SeenBefore),
		f.Match != "" && !f.Match.Match(n.id),
		!f.finds(n):
		return false
	}
	return !slices.ContainsFunc(facts, func(a askedFact) bool { return !a.fits(x.facts.values[n.facts]) })
}
