package console

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"muster/internal/wire"
	"muster/provisioner"
)

// allowPage is the allow-list of the store, with a form for another entry.
type allowPage struct {
	Entries []*provisioner.Allowance
	Ends    []choice
	Done    string

	// What was filled in, and what is wrong with it.
	Pattern, For, Why, Problem string

	now time.Time
}

// ends are how long an entry may stand; a day is offered first.
var ends = []choice{{"2h", "2 hours"}, {"24h", "a day"}, {"168h", "a week"}, {"0s", "until it is removed"}}

// allowDone says what was just done.
var allowDone = map[string]string{
	"add":    "Added: machines with such a name get in when they ask again, within seconds to minutes.",
	"remove": "Removed. Nodes that it has let in stay.",
}

// State says whether an entry lets anybody in.
func (p *allowPage) State(a *provisioner.Allowance) string {
	switch {
	case !a.ExpiresAt.IsZero() && !p.now.Before(a.ExpiresAt):
		return "ended"
	}
	return "good"
}

func (c allowPages) allow(v *visit) error {
	given := v.r.URL.Query()
	return c.showAllow(v, http.StatusOK, &allowPage{Pattern: given.Get("pattern"), For: "24h", Done: allowDone[given.Get("done")]})
}

// showAllow fills the page in and shows it.
func (c allowPages) showAllow(v *visit, status int, p *allowPage) (err error) {
	p.Ends, p.now = ends, c.cfg.Now()
	if p.Entries, err = c.cfg.Provisioner.Allowances(v.r.Context()); err != nil {
		return err
	}
	c.show(v.w, v.r, v.login, status, "allow", "Allow-list", p)
	return nil
}

// addAllowance adds an entry, or replaces that of the same pattern: sent twice, it
// is there once. What is wrong is told beside what was filled in.
func (c allowPages) addAllowance(v *visit) error {
	form := v.r.PostForm
	p := &allowPage{Pattern: strings.ToLower(strings.TrimSpace(form.Get("pattern"))), For: form.Get("for")}
	status, wrong := http.StatusBadRequest, reason(v)
	if p.Why = form.Get("why"); wrong != nil {
		status = statusOf(wrong)
	}
	until, err := time.ParseDuration(p.For)
	if err != nil || !slices.ContainsFunc(ends, func(e choice) bool { return e.Value == p.For }) {
		wrong = errors.Join(wrong, fmt.Errorf("for %.40q: want one of the list", p.For))
	}
	if pattern, err := wire.ParsePattern(p.Pattern); err != nil {
		wrong = errors.Join(wrong, err)
	} else if provisioner.AnyName(pattern) { // for labs, where there is a command line
		wrong = errors.Join(wrong, fmt.Errorf("%q lets every machine in that has a token: name a part of your names, such as web*.example.net", pattern))
	}
	if wrong == nil {
		_, wrong = c.cfg.Provisioner.AllowNames(v.r.Context(), p.Pattern, until, false, v.cause())
		if wrong != nil && !errors.Is(wrong, provisioner.ErrState) {
			return wrong
		}
		status = http.StatusConflict
	}
	if wrong != nil {
		p.Problem = wrong.Error()
		return c.showAllow(v, status, p)
	}
	http.Redirect(v.w, v.r, "/allow?done=add", http.StatusSeeOther)
	return nil
}

// removalConfirmation says what removing an entry will touch.
func removalConfirmation(pattern string) *confirmation {
	return &confirmation{
		Title: "Remove from the allow-list", Button: "Remove", To: "/allow/remove", Back: "/allow", Danger: true, On: []string{pattern}, Fields: map[string]string{"pattern": pattern},
		Touches: []string{"Machines with such a name that were never seen before wait for approval, unless another entry or their token names them.", "Nodes that it has let in stay."},
	}
}

// confirmRemoval asks whether an entry is to go.
func (c allowPages) confirmRemoval(v *visit) error {
	p := removalConfirmation(v.r.URL.Query().Get("pattern"))
	all, err := c.cfg.Provisioner.Allowances(v.r.Context())
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(all, func(a *provisioner.Allowance) bool { return string(a.Pattern) == p.On[0] }) {
		return fmt.Errorf("%.80q: %w", p.On[0], provisioner.ErrNotAllowed)
	}
	return c.page(v, "confirm", p.Title, p)
}

// removeAllowance removes an entry.
func (c allowPages) removeAllowance(v *visit) error {
	pattern := v.r.PostForm.Get("pattern")
	if err := reason(v); err != nil {
		return c.askAgain(v, err, removalConfirmation(pattern))
	}
	if err := c.cfg.Provisioner.DisallowNames(v.r.Context(), wire.Pattern(pattern), v.cause()); err != nil {
		return err
	}
	http.Redirect(v.w, v.r, "/allow?done=remove", http.StatusSeeOther)
	return nil
}
