package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/fleet"
)

// nodesPage is a page of the list of nodes.
type nodesPage struct {
	Query   string
	State   string
	States  []provisioner.State
	Site    string
	Within  string
	Withins []choice
	Token   string
	Policy  string
	Facts   []string // NAME=VALUE, asked for
	Kept    []string // names of the facts that can be
	Sort    string
	Sorts   []choice
	Page    *fleet.Page
	First   string // link to the first page, if this is another
	Next    string // link to the page after
	Problem string // with what was asked for
}

// A choice of a form.
type choice struct{ Value, Label string }

// offered reports whether a value is among the choices.
func offered(choices []choice, value string) bool {
	return slices.ContainsFunc(choices, func(c choice) bool { return c.Value == value })
}

var (
	withins = []choice{{"", "any time"}, {"0s", "has ended"}, {"24h", "within a day"}, {"72h", "within 3 days"}, {"168h", "within 7 days"}, {"336h", "within 14 days"}, {"720h", "within 30 days"}}
	sorts   = []choice{{"name", "by name"}, {"changed", "last change first"}, {"expires", "first to expire first"}}
)

// nodes lists nodes.
func (c nodePages) nodes(v *visit) error {
	ctx, cancel := context.WithTimeout(v.r.Context(), readingTimeout)
	defer cancel()
	given := v.r.URL.Query()
	p := &nodesPage{
		Query: strings.ToLower(strings.TrimSpace(given.Get("q"))), State: given.Get("state"), States: states, Site: strings.TrimSpace(given.Get("site")),
		Within: given.Get("within"), Withins: withins, Token: given.Get("token"), Policy: given.Get("policy"), Kept: c.cfg.Fleet.Facts(), Sort: given.Get("sort"), Sorts: sorts,
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
		if status == http.StatusInternalServerError { // what else there is to say is about the filter
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

// query returns what is asked for. A name without a * is how names begin.
func (p *nodesPage) query(now time.Time) (q fleet.Query, err error) {
	if strings.Contains(p.Query, "*") {
		q.Match = wire.Pattern(p.Query)
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
	q.Site, q.Token, q.Policy, q.Facts, q.Sort = jwt.Site(p.Site), jwt.TokenID(p.Token), p.Policy, p.Facts, fleet.Order(p.Sort)
	return q, nil
}

// Filtered reports whether a part of the fleet is asked for.
func (p *nodesPage) Filtered() bool {
	return p.Query+p.State+p.Site+p.Within+p.Token+p.Policy != "" || len(p.Facts) > 0
}

// link returns the address of the page at a cursor.
func (p *nodesPage) link(cursor string) string {
	v := make(url.Values)
	for name, value := range map[string]string{
		"q": p.Query, "state": p.State, "site": p.Site, "within": p.Within, "token": p.Token, "policy": p.Policy, "sort": p.Sort, "cursor": cursor,
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
