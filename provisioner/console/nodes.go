package console

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"muster/provisioner"
	"muster/provisioner/fleet"
)

// A listForm is the form above a list. Its fields are parameters of the API.
type listForm struct {
	url.Values // as given

	Path    string // of the page
	Problem string // of the request
}

func formOf(v *visit) listForm { return listForm{Values: v.r.URL.Query(), Path: v.r.URL.Path} }

// Link leads to the page with a cursor; "": the first one.
func (f *listForm) Link(cursor string) string {
	v := maps.Clone(f.Values)
	v.Set("cursor", cursor)
	return f.Path + "?" + v.Encode()
}

// notFilters are the parameters of a page that do not filter its list.
var notFilters = []string{"sort", "cursor", "page", "tick", "none", "done"}

// Filtered reports whether a filter is set.
func (f *listForm) Filtered() bool {
	for name := range f.Values {
		if !slices.Contains(notFilters, name) && f.Get(name) != "" {
			return true
		}
	}
	return false
}

// list shows a list, or what is wrong with its form, which is part of the page.
func (c *Console) list(v *visit, name, title string, f *listForm, page any, err error) error {
	status := http.StatusOK
	if err != nil {
		status, f.Problem, _ = c.problem(err)
	}
	c.show(v.w, v.r, v.login, status, name, title, page)
	return nil
}

type nodesPage struct {
	listForm

	States  []provisioner.State
	Withins []choice
	Sorts   []choice
	Kept    []string // names of the kept facts
	Actions []*action
	None    bool // nothing was ticked
	Page    *fleet.Page
}

// A choice is an option of a form.
type choice struct{ Value, Label string }

var (
	// withins are choices of expires_before.
	withins = []choice{
		{"", "any time"},
		{"0s", "has expired"},
		{"1d", "within a day"},
		{"3d", "within 3 days"},
		{"7d", "within 7 days"},
		{"14d", "within 14 days"},
		{"30d", "within 30 days"},
	}
	sorts = []choice{{"name", "by name"}, {"changed", "newest change first"}, {"expires", "first to expire first"}}
)

func (c nodePages) nodes(v *visit) error {
	ctx, cancel := context.WithTimeout(v.r.Context(), readingTimeout)
	defer cancel()
	p := &nodesPage{
		listForm: formOf(v),
		States:   states,
		Withins:  withins,
		Sorts:    sorts,
		Kept:     c.cfg.Fleet.Facts(),
		Actions:  nodeActions,
		None:     v.r.URL.Query().Has("none"),
	}
	q, err := c.query(p.Values)
	if err == nil {
		p.Page, err = c.cfg.Fleet.List(ctx, q)
	}
	return c.list(v, "nodes", "Nodes", &p.listForm, p, err)
}

// query takes a name without * as a prefix.
func (c nodePages) query(form url.Values) (fleet.Query, error) {
	given := maps.Clone(form)
	if name := given.Get("q"); strings.Contains(name, "*") {
		given.Set("match", name)
	} else if name != "" {
		given.Set("prefix", name)
	}
	q, err := fleet.ParseQuery(given, c.cfg.Now())
	if err != nil {
		return q, badRequest(err)
	}
	if !q.ExpiresBefore.IsZero() && len(q.States) == 0 {
		q.States = []provisioner.State{provisioner.StateEnrolled, provisioner.StateProvisioned}
	}
	return q, nil
}

// Box is the form value of a node: the order applies only to the node as it is shown.
func (*nodesPage) Box(n *fleet.Node) string {
	return string(n.Identity) + "/" +
		seenText(provisioner.Precondition{Revision: n.Revision, OwnedSince: n.OwnedSince})
}

// Tick leads to the page with every box ticked, or with none.
func (f *listForm) Tick() string {
	v := maps.Clone(f.Values)
	if v.Has("tick") {
		v.Del("tick")
	} else {
		v.Set("tick", "all")
	}
	return f.Path + "?" + v.Encode()
}

// Query is the filter, for orders for all nodes that match.
func (p *nodesPage) Query() string {
	v := maps.Clone(p.Values)
	for _, name := range notFilters {
		v.Del(name)
	}
	return v.Encode()
}

// Facts are the filters by fact.
func (p *nodesPage) Facts() (facts []string) {
	for _, fact := range p.Values["fact"] {
		if fact = strings.TrimSpace(fact); fact != "" {
			facts = append(facts, fact)
		}
	}
	return facts
}
