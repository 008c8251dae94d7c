package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"muster/provisioner/events"
	"muster/provisioner/login"
	"muster/provisioner/operate"
	"muster/provisioner/trust"
)

// A mistake is an error in a request to the console.
type mistake struct {
	status int
	err    error
}

func (m *mistake) Error() string { return m.err.Error() }
func (m *mistake) Unwrap() error { return m.err }

func badRequest(err error) error { return &mistake{http.StatusBadRequest, err} }

var (
	errNoPage      = &mistake{http.StatusNotFound, errors.New("there is no such page")}
	errNoReason    = &mistake{http.StatusBadRequest, errors.New("give a reason: it is kept in the history")}
	errForeignForm = &mistake{http.StatusForbidden,
		errors.New("this form is not the console's, or is too old: go back, reload the page, and send it again")}
)

func roleError(l *login.Login, needs trust.OperatorRole) error {
	return &mistake{http.StatusForbidden, fmt.Errorf("you are %s (%s), and this needs %s. "+
		"An admin changes roles with `muster operator add`", l.Role, l.Name, needs)}
}

func (c *Console) problem(err error) (status int, what, remedy string) {
	if m, ok := errors.AsType[*mistake](err); ok {
		return m.status, err.Error(), ""
	}
	return c.cfg.Problem(err)
}

type failPage struct {
	What string
	Do   string
	Back string // link to continue
}

// backFrom returns the page to go back to after an error at path.
func backFrom(path string) string {
	if page, _, order := strings.Cut(path, "/do/"); order {
		return cmp.Or(page, "/")
	}
	part, _, below := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	pages := []string{"nodes", "jobs", "approvals", "allow", "certificates", "tokens", "policies"}
	if below && slices.Contains(pages, part) {
		return "/" + part
	}
	return "/"
}

func subject(r *http.Request) string { return fmt.Sprintf("%.20s %.200s", r.Method, r.URL.Path) }

// fail answers with an error and logs it. Without a login it logs at debug level, since unknown callers could fill the
// log.
func (c *Console) fail(w http.ResponseWriter, r *http.Request, login *login.Login, err error) {
	status, what, remedy := c.problem(err)
	by, level := "", slog.LevelDebug
	if login != nil {
		by, level = login.By(), slog.LevelInfo
	}
	c.cfg.Log.Log(r.Context(), level, "operator's request failed", "subject", subject(r), "by", by, "err", err)
	c.show(w, r, login, status, "problem", http.StatusText(status), failPage{what, remedy, backFrom(r.URL.Path)})
}

const maxShadowEvents = 20

// policiesPage is the policy in use and its shadow.
type policiesPage struct {
	InUse   *operate.PolicyInUse
	Changes []*events.Logged // newest reloads
	Shadow  *Shadow          // or nil
	Differs []*events.Logged // newest differences
	Done    string
}

var policyActions = []*action{{
	Name:  "reload",
	Label: "Reload the policy",
	Touches: []string{
		"This provisioner reads its policy files now.",
		"A policy that does not compile, or whose tests fail, is refused: the former policy stays in use.",
	},
	Done: "The policy files were read again.",
}}

func (c policyPages) order(_ *visit, o *order) error {
	o.Back, o.On = "/policies", []string{"the policy"}
	o.do = func(ctx context.Context, cause trust.Cause) error {
		_, err := c.cfg.Orders.Process.ReloadPolicy(ctx, cause)
		return err
	}
	return nil
}

func (c policyPages) policies(v *visit) error {
	p := &policiesPage{Done: done(v, policyActions), InUse: c.cfg.Orders.Process.Policy()}
	if c.cfg.Shadow != nil {
		p.Shadow = c.cfg.Shadow()
	}
	p.Changes = c.cfg.Recent.Newest(maxShadowEvents, func(t *events.Logged) bool {
		return t.Type == events.PolicyReloaded || t.Type == events.PolicyRefused
	})
	p.Differs = c.cfg.Recent.Newest(maxShadowEvents, func(t *events.Logged) bool {
		return t.Type == events.ShadowDiffers
	})
	return c.page(v, "policies", "Policy", p)
}
