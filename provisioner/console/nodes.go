package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"muster/internal/paging"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/fleet"
)

type nodesPage struct {
	Query   string
	State   string
	States  []provisioner.State
	Site    string
	Within  string
	Withins []choice
	Token   string
	Policy  string
	Facts   []string // NAME=VALUE
	Kept    []string // names of the kept facts
	Sort    string
	Sorts   []choice
	Page    *fleet.Page
	First   string // link, empty on the first page
	Next    string // link
	Problem string // of the request
}

// A choice is an option of a form.
type choice struct{ Value, Label string }

func offered(choices []choice, value string) bool {
	return slices.ContainsFunc(choices, func(c choice) bool { return c.Value == value })
}

var (
	withins = []choice{
		{"", "any time"},
		{"0s", "has expired"},
		{"24h", "within a day"},
		{"72h", "within 3 days"},
		{"168h", "within 7 days"},
		{"336h", "within 14 days"},
		{"720h", "within 30 days"},
	}
	sorts = []choice{{"name", "by name"}, {"changed", "newest change first"}, {"expires", "first to expire first"}}
)

func (c nodePages) nodes(v *visit) error {
	ctx, cancel := context.WithTimeout(v.r.Context(), readingTimeout)
	defer cancel()
	given := v.r.URL.Query()
	p := &nodesPage{
		Query:   strings.ToLower(strings.TrimSpace(given.Get("q"))),
		State:   given.Get("state"),
		States:  states,
		Site:    strings.TrimSpace(given.Get("site")),
		Within:  given.Get("within"),
		Withins: withins,
		Token:   given.Get("token"),
		Policy:  given.Get("policy"),
		Kept:    c.cfg.Fleet.Facts(),
		Sort:    given.Get("sort"),
		Sorts:   sorts,
	}
	for _, fact := range given["fact"] {
		if fact = strings.TrimSpace(fact); fact != "" {
			p.Facts = append(p.Facts, fact)
		}
	}
	q, err := p.query(c.cfg.Now())
	q.Cursor = given.Get("cursor")
	if err == nil {
		err = q.Check()
	}
	if err == nil {
		p.Page, err = c.cfg.Fleet.List(ctx, q)
	}
	if err != nil {
		p.Problem = err.Error()
		status, _, _ := c.problem(err)
		if status == http.StatusInternalServerError { // the remaining errors are of the filter
			status = http.StatusBadRequest
		}
		c.show(v.w, v.r, v.login, status, "nodes", "Nodes", p)
		return nil
	}
	if q.Cursor != "" {
		p.First = p.link("")
	}
	if p.Page.Next != "" {
		p.Next = p.link(p.Page.Next)
	}
	return c.page(v, "nodes", "Nodes", p)
}

// query takes a name without * as a prefix.
func (p *nodesPage) query(now time.Time) (q fleet.Query, err error) {
	if strings.Contains(p.Query, "*") {
		q.Match = wire.Pattern(wire.FoldName(p.Query))
	} else {
		q.Prefix = p.Query
	}
	if p.State != "" {
		q.States = []provisioner.State{provisioner.State(p.State)}
	}
	if p.Within != "" {
		within, err := time.ParseDuration(p.Within)
		if err != nil || !offered(withins, p.Within) {
			return q, badRequest(fmt.Errorf("expires within %.40q: want one of the list", p.Within))
		}
		q.ExpiresBefore = now.Add(within).UTC().Truncate(time.Second)
		if len(q.States) == 0 {
			q.States = []provisioner.State{provisioner.StateEnrolled, provisioner.StateProvisioned}
		}
	}
	q.Site, q.Token, q.Policy = jwt.Site(p.Site), jwt.TokenID(p.Token), p.Policy
	q.Facts, q.Sort = p.Facts, paging.Order(p.Sort)
	return q, nil
}

// Filtered reports whether a filter is set.
func (p *nodesPage) Filtered() bool {
	return p.Query+p.State+p.Site+p.Within+p.Token+p.Policy != "" || len(p.Facts) > 0
}

func (p *nodesPage) link(cursor string) string {
	v := make(url.Values)
	for name, value := range map[string]string{
		"q": p.Query, "state": p.State, "site": p.Site, "within": p.Within, "token": p.Token,
		"policy": p.Policy, "sort": p.Sort, "cursor": cursor,
	} {
		if value != "" {
			v.Set(name, value)
		}
	}
	if len(p.Facts) > 0 {
		v["fact"] = p.Facts
	}
	return "/nodes?" + v.Encode()
}
