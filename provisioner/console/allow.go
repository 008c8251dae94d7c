package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"muster/provisioner/operate"
	"muster/provisioner/orders"

	"muster/provisioner/trust"

	"muster/internal/wire"
)

type allowPage struct {
	Entries []*orders.Allowance // the first of them
	More    int                 // entries not shown
	Ends    []choice
	Done    string

	// The form as sent, with its fault.
	Pattern, For, Why, Problem string

	now time.Time
}

// ends are the lifetimes offered.
var ends = []choice{{"2h", "2 hours"}, {"24h", "a day"}, {"168h", "a week"}, {"0s", "until it is removed"}}

// maxAllowRows bounds the table: an imported list may have tens of thousands of entries.
const maxAllowRows = 1000

// allowActions begin with the one that has a form of its own.
var allowActions = []*action{
	{Name: "add", Done: "Added: nodes with such a name enroll at their next request, within seconds to minutes."},
	{
		Name:   "remove",
		Label:  "Remove from the allow-list",
		Danger: true,
		Touches: []string{
			"New nodes with such a name wait for approval, unless another entry or their token names them.",
			"Nodes that enrolled under it stay.",
		},
		Done: "Removed. Nodes that enrolled under it stay.",
	},
}

// Good reports whether an entry is in force.
func (p *allowPage) Good(a *orders.Allowance) bool {
	return a.ExpiresAt.IsZero() || p.now.Before(a.ExpiresAt)
}

func (c allowPages) allow(v *visit) error {
	page := &allowPage{Pattern: v.r.FormValue("pattern"), For: "24h", Done: done(v, allowActions)}
	return c.showAllow(v, http.StatusOK, page)
}

func (c allowPages) showAllow(v *visit, status int, p *allowPage) (err error) {
	p.Ends, p.now = ends, c.cfg.Now()
	if p.Entries, err = c.cfg.Orders.AllowList.List(v.r.Context()); err != nil {
		return err
	}
	if p.More = len(p.Entries) - maxAllowRows; p.More > 0 {
		p.Entries = p.Entries[:maxAllowRows]
	}
	c.show(v.w, v.r, v.login, status, "allow", "Allow-list", p)
	return nil
}

// addAllowance adds or replaces an entry, so that a repeated form is harmless. Faults are shown with the form.
func (c allowPages) addAllowance(v *visit) error {
	form := v.r.PostForm
	p := &allowPage{Pattern: wire.FoldName(form.Get("pattern")), For: form.Get("for")}
	cause, wrong := reason(v)
	p.Why = cause.Why
	span, err := time.ParseDuration(p.For)
	if err != nil || !slices.ContainsFunc(ends, func(c choice) bool { return c.Value == p.For }) {
		wrong = errors.Join(wrong, fmt.Errorf("for %.40q: want one of the list", p.For))
	}
	if pattern, err := wire.ParsePattern(p.Pattern); err != nil {
		wrong = errors.Join(wrong, err)
	} else if orders.AnyName(pattern) { // lab installations use the command line
		wrong = errors.Join(wrong, fmt.Errorf("%q admits every node that has a token: name a part of your names, "+
			"such as web*.example.net", pattern))
	}
	status := http.StatusBadRequest
	if wrong == nil {
		if _, wrong = c.cfg.Orders.AllowList.Add(v.r.Context(), operate.AllowOrder{Pattern: p.Pattern, Expires: span},
			cause); wrong == nil {
			http.Redirect(v.w, v.r, "/allow?done=add", http.StatusSeeOther)
			return nil
		}
		status, _, _ = c.problem(wrong)
	}
	p.Problem = wrong.Error()
	return c.showAllow(v, status, p)
}

func (c allowPages) order(v *visit, o *order) error {
	pattern := v.r.FormValue("pattern")
	o.Back, o.On, o.Fields = "/allow", []string{pattern}, url.Values{"pattern": {pattern}}
	o.do = func(ctx context.Context, cause trust.Cause) error {
		return c.cfg.Orders.AllowList.Remove(ctx, wire.Pattern(pattern), cause)
	}
	return nil
}
