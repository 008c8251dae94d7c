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

// Filtered reports whether a filter is set.
func (f *listForm) Filtered() bool {
	for name := range f.Values {
		if !slices.Contains([]string{"sort", "cursor", "tick", "done"}, name) && f.Get(name) != "" {
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

// nodes takes a name without * as a prefix.
func (c nodePages) nodes(v *visit) error {
	ctx, cancel := context.WithTimeout(v.r.Context(), readingTimeout)
	defer cancel()
	p := &nodesPage{listForm: formOf(v), States: states, Withins: withins, Sorts: sorts, Kept: c.cfg.Fleet.Facts()}
	given := maps.Clone(p.Values)
	if name := p.Get("q"); strings.Contains(name, "*") {
		given.Set("match", name)
	} else if name != "" {
		given.Set("prefix", name)
	}
	q, err := fleet.ParseQuery(given, c.cfg.Now())
	if !q.ExpiresBefore.IsZero() && len(q.States) == 0 {
		q.States = []provisioner.State{provisioner.StateEnrolled, provisioner.StateProvisioned}
	}
	if err != nil {
		err = badRequest(err)
	} else {
		p.Page, err = c.cfg.Fleet.List(ctx, q)
	}
	return c.list(v, "nodes", "Nodes", &p.listForm, p, err)
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
