package services

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"muster/internal/paging"
	"muster/internal/span"
	"muster/internal/wire"
)

// A Query asks for a page of a list. Zero members select all.
type Query struct {
	Node     wire.Pattern
	Of       func(wire.Identity) bool // more about the node; nil: any
	Name     string
	States   []State // any of them
	Stuck    bool
	Waiting  bool          // for an approval
	Expiring time.Duration // ends within, or has ended within
	paging.Query
}

func (q *Query) selects(l *Listed, now time.Time) bool {
	return (q.Node == "" || q.Node.Match(l.Node)) && (q.Of == nil || q.Of(l.Node)) &&
		(q.Name == "" || q.Name == l.Name) &&
		(len(q.States) == 0 || slices.Contains(q.States, l.State)) && (!q.Stuck || l.Stuck) &&
		(!q.Waiting || l.State == StateWaiting) &&
		(q.Expiring == 0 || l.Serial != "" && l.State != StateRevoked && l.Expires.Sub(now).Abs() <= q.Expiring)
}

// QueryParameters are the parameters of [ParseQuery]. A trailing * allows repetition.
var QueryParameters = []string{
	"match", "name", "state*", "stuck", "waiting", "expires_before", "sort", "cursor", "limit",
}

// ParseQuery reads a query of the API, the console or a command. The error lists every mistake.
func ParseQuery(v url.Values, now time.Time) (q Query, err error) {
	p := paging.Parameters{Values: v, Now: now}
	q.Node, q.Name = wire.Pattern(wire.FoldName(v.Get("match"))), v.Get("name")
	q.Stuck, q.Waiting, q.Query = p.True("stuck"), p.True("waiting"), p.Page()
	if q.Node != "" {
		_, err := wire.ParsePattern(string(q.Node))
		p.Wrong("match", err)
	}
	for _, s := range p.Texts("state") {
		if q.States = append(q.States, State(s)); !slices.Contains(States, State(s)) {
			p.Wrong("state", fmt.Errorf("%.40q, want one of %s", s, States))
		}
	}
	if before := p.Time("expires_before", span.ParseTime); !before.IsZero() {
		q.Expiring = cmp.Or(before.Sub(now), 1) // 0 selects all
	}
	return q, p.Err(q.Check())
}

// A Page is a part of a list.
type Page struct {
	Certificates []Listed `json:"certificates"`
	Next         string   `json:"next,omitempty"` // cursor; empty: last page
	Counts
}

// Counts counts service certificates.
type Counts struct {
	Total  int           `json:"total"`
	States map[State]int `json:"states"`
	Stuck  int           `json:"stuck"` // in any state
}

// Counts counts the entries of some nodes; nil: of all. It returns nil if they are not read yet.
func (x *Index) Counts(of func(wire.Identity) bool) *Counts {
	p, err := x.Page(Query{Of: of})
	if err != nil {
		return nil
	}
	return &p.Counts
}

// Page returns a page of the entries that the query selects, by node and name, with counts of all of them. The error is
// [paging.ErrCursor], or that of [Index.Fresh].
func (x *Index) Page(q Query) (*Page, error) {
	if err := x.Fresh(); err != nil {
		return nil, err
	}
	p := &Page{Certificates: []Listed{}, Counts: Counts{States: make(map[State]int)}}
	one, now := wire.Identity(q.Node), x.now()
	if strings.ContainsAny(string(q.Node), "*?") {
		one = ""
	}
	selected := func(yield func(Listed) bool) {
		for _, c := range x.of(one) {
			l := x.listed(c)
			if !q.selects(&l, now) {
				continue
			}
			p.Total++
			p.States[l.State]++
			if l.Stuck {
				p.Stuck++
			}
			if !yield(l) {
				return
			}
		}
	}
	rows, next, err := paging.Cut(q.Query, selected, func(l Listed) paging.Row {
		r := paging.Row{Name: string(l.Node) + " " + l.Name, Changed: l.Changed.UnixNano(), State: string(l.State)}
		if !l.Expires.IsZero() {
			r.Expires = l.Expires.UnixNano()
		}
		return r
	})
	p.Certificates, p.Next = append(p.Certificates, rows...), next
	return p, err
}
