package fleet

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/trust"
)

// Bounds of a page.
const (
	DefaultLimit = 100
	MaxLimit     = 1000
)

// An Order is what a list is sorted by.
type Order string

// The orders. Of nodes that are alike, the name decides.
const (
	ByName    Order = "name"
	ByExpiry  Order = "expires" // who expires first comes first, who has no certificate last
	ByChanged Order = "changed" // the newest change comes first
)

// states are those that a record has.
var states = []provisioner.State{
	provisioner.StateEnrolled, provisioner.StateProvisioned, provisioner.StateRevoked, provisioner.StateRetired,
}

// A Filter selects nodes by all that is set. The zero value selects every node
// that has a record.
type Filter struct {
	States        []provisioner.State // any of them
	Site          jwt.Site
	Prefix        string       // of the name
	Match         wire.Pattern // the name
	ExpiresBefore time.Time    // has a certificate that ends before
	SeenBefore    time.Time    // not heard of since, or never
	Token         jwt.TokenID
	Policy        string // the digest, or how it begins

	// Facts are NAME=VALUE, all of which the node has said; * and ? in a value stand
	// for any text and any character, and no value is for who has said none. Only
	// facts that are kept can be asked for: see [ErrFact].
	Facts []string
}

// IsZero reports whether it selects every node.
func (f *Filter) IsZero() bool { return reflect.ValueOf(*f).IsZero() }

// A Query asks for one page of a list.
type Query struct {
	Filter
	Sort   Order  // "" is [ByName]
	Limit  int    // 0 is [DefaultLimit]
	Cursor string // the Next of the page before, in the same order; "" for the first
}

// A Page is a part of a list. Going from cursor to cursor until there is no Next
// lists every node that does not change meanwhile exactly once. In an order other
// than by name, one that changes may move, and be listed twice or not at all.
type Page struct {
	Nodes []Node `json:"nodes"`
	Next  string `json:"next,omitempty"` // cursor of the page after; empty: this is the last

	// Total and States count all that the filter selects, on whatever page.
	Total  int                       `json:"total"`
	States map[provisioner.State]int `json:"states"`
}

// Check reports everything that is wrong with the query.
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
	if strings.Trim(q.Prefix, "abcdefghijklmnopqrstuvwxyz0123456789-.") != "" {
		errs = append(errs, fmt.Errorf("prefix: %.80q, and names are of a-z, 0-9, - and dots", q.Prefix))
	}
	if strings.Trim(q.Policy, "0123456789abcdef") != "" || len(q.Policy) > 64 {
		errs = append(errs, fmt.Errorf("policy: %.80q, want 1 to 64 lower-case hex digits of its digest", q.Policy))
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
	if q.Sort != "" && q.Sort != ByName && q.Sort != ByExpiry && q.Sort != ByChanged {
		errs = append(errs, fmt.Errorf("sort: %.40q, want %s, %s or %s", q.Sort, ByName, ByExpiry, ByChanged))
	}
	if q.Limit < 0 || q.Limit > MaxLimit {
		errs = append(errs, fmt.Errorf("limit: %d, want 1 to %d", q.Limit, MaxLimit))
	}
	return errors.Join(errs...)
}

// List returns a page, once the records have been read and, if it asks for that, when
// nodes were heard of. The error is [ErrReading] if they are not when ctx is done, [ErrHeard] if the store does not go
// back to SeenBefore, [ErrCursor], [ErrFact], or what is wrong with the query.
func (x *Index) List(ctx context.Context, q Query) (*Page, error) {
	if err := q.Check(); err != nil {
		return nil, err
	}
	if q.Sort == "" {
		q.Sort = ByName
	}
	if q.Limit == 0 {
		q.Limit = DefaultLimit
	}
	facts, err := x.askedFacts(q.Facts)
	if err != nil {
		return nil, err
	}
	after, err := q.after()
	if err != nil {
		return nil, err
	}
	x.log.Settle()
	read := []<-chan struct{}{x.current}
	if !q.SeenBefore.IsZero() {
		read = append(read, x.heard)
	}
	if err := wait(ctx, read...); err != nil {
		return nil, err
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	p := &Page{States: make(map[provisioner.State]int)}
	if !q.SeenBefore.IsZero() && !q.SeenBefore.After(x.since) {
		return nil, notKept(x.since)
	}
	first := &first{by: q.Sort, after: after, limit: q.Limit}
	for i := range x.nodes {
		n := &x.nodes[i]
		if x.selects(&q.Filter, n, facts) {
			p.Total++
			p.States[x.of(n).state]++
			first.offer(n)
		}
	}
	first.cut()
	p.Nodes = make([]Node, 0, len(first.kept))
	for _, n := range first.kept {
		p.Nodes = append(p.Nodes, x.shown(n))
	}
	if first.more {
		p.Next = q.cursor(first.kept[len(first.kept)-1])
	}
	return p, nil
}

// selects reports whether a node is asked for, with what is asked of its facts. The caller holds mu.
func (x *Index) selects(f *Filter, n *node, facts []askedFact) bool {
	s := x.of(n)
	switch {
	case !n.recorded(),
		len(f.States) > 0 && !slices.Contains(f.States, s.state),
		f.Site != "" && s.site != f.Site,
		f.Token != "" && x.tokens.values[n.token] != f.Token,
		!strings.HasPrefix(s.policy, f.Policy),
		!strings.HasPrefix(string(n.id), f.Prefix),
		!f.ExpiresBefore.IsZero() && (n.expires == 0 || !instant(n.expires).Before(f.ExpiresBefore)),
		!f.SeenBefore.IsZero() && !instant(x.heardOf(n)).Before(f.SeenBefore),
		f.Match != "" && !f.Match.Match(n.id):
		return false
	}
	return !slices.ContainsFunc(facts, func(a askedFact) bool { return !a.fits(x.facts.values[n.facts]) })
}
