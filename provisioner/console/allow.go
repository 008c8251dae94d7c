package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"muster/provisioner/orders"

	"muster/provisioner/trust"

	"muster/internal/wire"
)

// allowPage is the allow-list, with a form for another entry.
type allowPage struct {
	Entries []*orders.Allowance // the first of them
	More    int                 // entries beyond those
	Ends    []choice
	Done    string

	// What was filled in, and what is wrong with it.
	Pattern, For, Why, Problem string

	now time.Time
}

// ends are how long an entry may stand; a day is offered first.
var ends = []choice{{"2h", "2 hours"}, {"24h", "a day"}, {"168h", "a week"}, {"0s", "until it is removed"}}

// maxAllowRows bounds the table: a list that is imported may have tens of thousands.
const maxAllowRows = 1000

// allowActions are about one entry.
var allowActions = []*action{
	{Name: "add", Done: "Added: machines with such a name get in when they ask again, within seconds to minutes."},
	{
		Name:   "remove",
		Label:  "Remove from the allow-list",
		Danger: true,
		Touches: []string{
			"Machines with such a name that were never seen before wait for approval, unless another entry or their token names them.",
			"Nodes that it has let in stay.",
		},
		Done: "Removed. Nodes that it has let in stay.",
	},
}

// Good reports whether an entry lets machines in.
func (p *allowPage) Good(a *orders.Allowance) bool {
	return a.ExpiresAt.IsZero() || p.now.Before(a.ExpiresAt)
}

func (c allowPages) allow(v *visit) error {
	return c.showAllow(v, http.StatusOK, &allowPage{Pattern: v.r.FormValue("pattern"), For: "24h", Done: done(v, allowActions)})
}

// showAllow fills the page in and shows it.
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

// addAllowance adds an entry, or replaces that of the same pattern: sent twice, it is there once. What is wrong is told
// beside what was filled in.
func (c allowPages) addAllowance(v *visit) error {
	form := v.r.PostForm
	p := &allowPage{Pattern: strings.ToLower(strings.TrimSpace(form.Get("pattern"))), For: form.Get("for")}
	cause, wrong := reason(v)
	p.Why = cause.Why
	span, err := time.ParseDuration(p.For)
	if err != nil || !offered(ends, p.For) {
		wrong = errors.Join(wrong, fmt.Errorf("for %.40q: want one of the list", p.For))
	}
	if pattern, err := wire.ParsePattern(p.Pattern); err != nil {
		wrong = errors.Join(wrong, err)
	} else if orders.AnyName(pattern) { // for labs, where there is a command line
		wrong = errors.Join(wrong, fmt.Errorf("%q lets every machine in that has a token: name a part of your names, such as web*.example.net", pattern))
	}
	status := http.StatusBadRequest
	if wrong == nil {
		if _, wrong = c.cfg.Orders.AllowList.Add(v.r.Context(), p.Pattern, span, false, cause); wrong == nil {
			http.Redirect(v.w, v.r, "/allow?done=add", http.StatusSeeOther)
			return nil
		}
		status, _, _ = c.problem(wrong)
	}
	p.Problem = wrong.Error()
	return c.showAllow(v, status, p)
}

// removal reads an order to remove an entry.
func (c allowPages) removal(v *visit) (*order, error) {
	pattern := v.r.FormValue("pattern")
	return &order{
		action: named(allowActions, "remove"),
		Back:   "/allow",
		On:     []string{pattern},
		Fields: url.Values{"pattern": {pattern}},
		do: func(ctx context.Context, cause trust.Cause) error {
			return c.cfg.Orders.AllowList.Remove(ctx, wire.Pattern(pattern), cause)
		},
	}, nil
}
