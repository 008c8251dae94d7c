package console

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"muster/internal/paging"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/events"
	"muster/provisioner/fleet"
	"muster/provisioner/trust"
	"muster/provisioner/waiting"
)

// A listForm is the form above a list. Its fields are parameters of the API.
type listForm struct {
	url.Values // as given

	Path    string // of the page
	Problem string // of the request
	Pages   []int  // numbers of pages to link to, 0 for a gap
}

func formOf(v *visit) listForm { return listForm{Values: v.r.URL.Query(), Path: v.r.URL.Path} }

var (
	ofPage     = []string{"cursor", "page", "tick", "none", "done"} // of a list
	notFilters = append([]string{"sort", "limit"}, ofPage...)
)

// without returns the parameters but those of these names.
func (f *listForm) without(names ...string) url.Values {
	v := maps.Clone(f.Values)
	for _, name := range names {
		v.Del(name)
	}
	return v
}

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

	States    []provisioner.State
	Protocols []string
	Withins   []choice
	Spans     []choice
	Kept      []string // names of the kept facts
	Actions   []*action
	By        string // what the text of the search is; "": a name
	Page      *fleet.Page
	Waiting   []*waiting.Key // keys that the search finds, if no node
	Refused   []*events.Logged
	Runs      map[wire.Identity]*fleet.Run
}

// heads are the columns by the order that each gives.
var heads = []struct {
	Label string
	Sort  paging.Order
	down  bool // the order has the newest first
}{
	{Label: "Name", Sort: paging.ByName},
	{Label: "State", Sort: paging.ByState},
	{Label: "Connected", Sort: paging.ByConnected},
	{Label: "Site", Sort: paging.BySite},
	{Label: "Last seen", Sort: paging.BySeen, down: true},
	{Label: "Certificate expires", Sort: paging.ByExpiry},
	{Label: "Changed", Sort: paging.ByChanged, down: true},
}

// Instead is the column in place of the connection, which only muster's agents have, or "".
func (p *nodesPage) Instead() string {
	return map[string]string{"puppet": "Last run", "choria": "Agent"}[p.Get("protocol")]
}

// A head is the head of a column. Its link sorts the list by the column, or the other way round.
type head struct{ Label, Link, Sorted string }

// Heads are those of the table.
func (p *nodesPage) Heads() (all []head) {
	now := cmp.Or(paging.Order(p.Get("sort")), paging.ByName)
	for _, h := range heads {
		if label := p.Instead(); label != "" && h.Sort == paging.ByConnected {
			all = append(all, head{Label: label})
			continue
		}
		to, sorted := h.Sort, ""
		switch now {
		case h.Sort:
			to, sorted = "-"+h.Sort, map[bool]string{false: "ascending", true: "descending"}[h.down]
		case "-" + h.Sort:
			sorted = map[bool]string{true: "ascending", false: "descending"}[h.down]
		}
		all = append(all, head{h.Label, p.with("sort", string(to)), sorted})
	}
	return all
}

// with leads to the first page with another value of a parameter.
func (f *listForm) with(name, value string) string {
	v := f.without(ofPage...)
	v.Set(name, value)
	return f.Path + "?" + v.Encode()
}

// PageLink leads to a page by its number.
func (f *listForm) PageLink(number int) string { return f.with("page", strconv.Itoa(number)) }

// pageNumbers returns the numbers of the first, the last and the neighboring pages; nil if there is only one.
func pageNumbers(total int, q paging.Query) (numbers []int) {
	size := cmp.Or(q.Limit, paging.DefaultLimit)
	last, here := (total+size-1)/size, max(q.Number, 1)
	if last < 2 {
		return nil
	}
	for n := 1; n <= last; n++ {
		if n == 1 || n == last || max(n, here)-min(n, here) <= 2 {
			numbers = append(numbers, n)
		} else if numbers[len(numbers)-1] != 0 {
			numbers = append(numbers, 0)
		}
	}
	return numbers
}

// Here is the number of the page.
func (f *listForm) Here() int {
	n, _ := strconv.Atoi(f.Get("page"))
	return max(n, 1)
}

// Unshown are the parameters that the form has no field for, and keeps.
func (p *nodesPage) Unshown() (names []string) {
	for _, name := range []string{"token", "policy", "faulty", "seen_before", "match", "prefix", "sort", "limit"} {
		if p.Get(name) != "" {
			names = append(names, name)
		}
	}
	return names
}

// Export leads to the list as a file, csv or json.
func (f *listForm) Export(kind string) string { return f.Path + "." + kind + "?" + f.Encode() }

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
	// spans are choices of for.
	spans = []choice{
		{"", "any time"},
		{"1m", "a minute"},
		{"10m", "10 minutes"},
		{"1h", "an hour"},
		{"1d", "a day"},
		{"7d", "7 days"},
	}
	sorts = []choice{{"name", "by name"}, {"changed", "newest change first"}, {"expires", "first to expire first"}}
)

func (c nodePages) nodes(v *visit) error {
	p := &nodesPage{
		listForm:  formOf(v),
		States:    states,
		Protocols: provisioner.Protocols,
		Withins:   withins,
		Spans:     spans,
		Kept:      c.cfg.Fleet.Facts(),
		Actions:   nodeActions,
		Runs:      make(map[wire.Identity]*fleet.Run),
	}
	found, err := c.find(v, p.Values)
	if err == nil {
		p.Page, p.By = found.page, found.by
		p.Pages = pageNumbers(found.page.Total, found.query.Query)
		if found.page.Total == 0 {
			p.Waiting, err = c.waitingFor(v, p.Get("q"))
			p.Refused = c.refusedAs(v, p.Get("q"))
		}
		if p.Instead() == "Last run" {
			for _, n := range p.Page.Nodes {
				if r, err := c.cfg.Nodes.Report(v.r.Context(), n.Identity, c.cfg.Now()); err == nil {
					p.Runs[n.Identity] = r.Run
				}
			}
		}
	}
	return c.list(v, "nodes", "Nodes", &p.listForm, p, err)
}

// A found is what a search has found.
type found struct {
	query fleet.Query
	page  *fleet.Page // its first page
	by    string      // see [fleet.Reading]
}

// find reads the text of a search in turn as what it may be, until a node is found, at last as the label of a token.
func (c *Console) find(v *visit, form url.Values) (*found, error) {
	ctx, cancel := context.WithTimeout(v.r.Context(), readingTimeout)
	defer cancel()
	q, err := fleet.ParseQuery(form, c.cfg.Now())
	q.Sites = v.login.Sites
	if err != nil {
		return nil, badRequest(err)
	}
	if !q.ExpiresBefore.IsZero() && len(q.States) == 0 {
		q.States = []provisioner.State{provisioner.StateEnrolled, provisioner.StateProvisioned}
	}
	text := strings.TrimSpace(form.Get("q"))
	readings := fleet.Readings(text)
	if text == "" {
		readings = []fleet.Reading{{Set: func(*fleet.Filter) {}}}
	}
	var first *found // without nodes
	var wrong error  // no name, for example
	for i, last := 0, len(readings)-1; i < len(readings); i++ {
		f := &found{query: q, by: readings[i].Of}
		readings[i].Set(&f.query.Filter)
		if wrong = f.query.Check(); wrong == nil {
			if f.page, err = c.cfg.Fleet.List(ctx, f.query); err != nil || f.page.Total > 0 {
				return f, err
			}
			first = cmp.Or(first, f)
		}
		if i == last && text != "" && !strings.Contains(text, "=") {
			if readings, err = c.addLabeled(ctx, q.Sites, readings, text); err != nil {
				return nil, err
			}
		}
	}
	if first == nil {
		return nil, badRequest(wrong)
	}
	return first, nil
}

// addLabeled adds the reading of a text as the label of a token, if there is one at the sites.
func (c *Console) addLabeled(ctx context.Context, sites trust.Sites, readings []fleet.Reading, text string,
) ([]fleet.Reading, error) {
	tokens, err := c.cfg.Orders.Tokens.List(ctx)
	for _, t := range tokens {
		if t.JTI == text && sites.Has(t.Site) {
			return append(readings, fleet.Reading{Of: "token", Set: func(f *fleet.Filter) { f.Token = t.ID }}), nil
		}
	}
	return readings, err
}

// waitingFor returns keys that wait for a text's name, have its address, or its fingerprint.
func (c *Console) waitingFor(v *visit, text string) ([]*waiting.Key, error) {
	name, hash := wire.FoldName(text), wire.FoldHash(text)
	if len(name) < 3 {
		return nil, nil
	}
	all, err := c.keysOf(v.r.Context(), v, "")
	all = slices.DeleteFunc(slices.Clone(all), func(w *waiting.Key) bool {
		return !strings.HasPrefix(string(w.Identity), name) && w.Source != name && !strings.HasPrefix(w.KeyHash, hash)
	})
	return all[:min(firstNames, len(all))], err
}

// Box is the form value of a node: the order applies only to the node as it is shown.
func (*nodesPage) Box(n *fleet.Node) string {
	return string(n.Identity) + "/" +
		seenText(provisioner.Precondition{Revision: n.Revision, OwnedSince: n.OwnedSince})
}

// Tick leads to the page with every box ticked, or with none.
func (f *listForm) Tick() string {
	v := f.without("tick")
	if !f.Has("tick") {
		v.Set("tick", "all")
	}
	return f.Path + "?" + v.Encode()
}

// Query is the filter, for orders for all nodes that match.
func (p *nodesPage) Query() string { return p.without(notFilters...).Encode() }

// Facts are the filters by fact.
func (p *nodesPage) Facts() (facts []string) {
	for _, fact := range p.Values["fact"] {
		if fact = strings.TrimSpace(fact); fact != "" {
			facts = append(facts, fact)
		}
	}
	return facts
}
