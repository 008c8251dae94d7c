package fleet

import (
	"cmp"
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

// Limits of the nodes on a page.
const (
	DefaultLimit = 100
	MaxLimit     = 1000
)

// An Order is the order of a list. Equal nodes are sorted by name.
type Order string

// The orders.
const (
	ByName    Order = "name"
	ByExpiry  Order = "expires" // soonest first; nodes without a certificate last
	ByChanged Order = "changed" // newest first
)

var states = []provisioner.State{
	provisioner.StateEnrolled, provisioner.StateProvisioned, provisioner.StateRevoked, provisioner.StateRetired,
}

// A Filter selects the nodes that meet all conditions. The zero value selects every node on record.
type Filter struct {
	States        []provisioner.State // any of them
	Site          jwt.Site
	Protocol      string       // one of [provisioner.Protocols]
	Prefix        string       // of the name
	Match         wire.Pattern // the name
	ExpiresBefore time.Time    // end of the certificate
	SeenBefore    time.Time    // last seen before, or never
	Token         jwt.TokenID
	Policy        string // a prefix of the digest
	Faulty        bool   // the node reports a fault

	// Facts are NAME=VALUE with * and ? in VALUE; an empty VALUE selects nodes without this fact. Only kept facts can
	// be used, see [ErrFact].
	Facts []string
}

// IsZero reports whether it selects every node.
func (f *Filter) IsZero() bool { return reflect.ValueOf(*f).IsZero() }

// A Query asks for a page of a list.
type Query struct {
	Filter
	Sort   Order  // "": [ByName]
	Limit  int    // 0: [DefaultLimit]
	Cursor string // [Page.Next] of the page before; "": first page
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
	if q.Sort != "" && q.Sort != ByName && q.Sort != ByExpiry && q.Sort != ByChanged {
		errs = append(errs, fmt.Errorf("sort: %.40q, want %s, %s or %s", q.Sort, ByName, ByExpiry, ByChanged))
	}
	if q.Limit < 0 || q.Limit > MaxLimit {
		errs = append(errs, fmt.Errorf("limit: %d, want 1 to %d", q.Limit, MaxLimit))
	}
	return errors.Join(errs...)
}

// List returns a page once the index is read. The error is [ErrReading] if ctx ends first, [ErrHeard] if SeenBefore is
// too long ago, [ErrCursor], [ErrFact], or that of [Query.Check].
func (x *Index) List(ctx context.Context, q Query) (*Page, error) {
	if err := q.Check(); err != nil {
		return nil, err
	}
	q.Sort, q.Limit = cmp.Or(q.Sort, ByName), cmp.Or(q.Limit, DefaultLimit)
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
	if err := x.wait(ctx, read...); err != nil {
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
			p.States[x.of(n).State]++
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

// selects requires mu.
func (x *Index) selects(f *Filter, n *node, facts []askedFact) bool {
	s := x.of(n)
	switch {
	case !n.recorded(),
		len(f.States) > 0 && !slices.Contains(f.States, s.State),
		f.Site != "" && s.Site != f.Site,
		f.Protocol != "" && s.Protocol.String() != f.Protocol,
		f.Token != "" && x.tokens.values[n.token] != f.Token,
		!strings.HasPrefix(s.Policy, f.Policy),
		f.Faulty && s.Fault == "",
		!strings.HasPrefix(string(n.id), f.Prefix),
		!f.ExpiresBefore.IsZero() && (n.expires == 0 || !instant(n.expires).Before(f.ExpiresBefore)),
		!f.SeenBefore.IsZero() && !instant(x.heardOf(n)).Before(f.SeenBefore),
		f.Match != "" && !f.Match.Match(n.id):
		return false
	}
	return !slices.ContainsFunc(facts, func(a askedFact) bool { return !a.fits(x.facts.values[n.facts]) })
}
