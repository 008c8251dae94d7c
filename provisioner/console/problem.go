package console

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"muster/internal/cli"
	"muster/internal/wire"
	"muster/policies"
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

type policiesPage struct {
	InUse   *operate.PolicyInUse
	Changes []*events.Logged // newest reloads
	Shadow  *Shadow          // or nil
	Differs []*events.Logged // newest differences
	Done    string

	Decisions []*events.Logged // newest

	// For auditors only, the last two for admins.
	Files  []policies.File
	Loaded time.Time
	Tests  *table
	Input  string // tried
	Answer string // to it, or a fault of it
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

// try evaluates an input, and changes nothing.
func (c policyPages) try(v *visit) error {
	p := &policiesPage{Input: v.r.PostForm.Get("input")}
	in, err := policies.ParseInput([]byte(p.Input))
	if err != nil {
		p.Answer = sentence(cli.Printable(err.Error()))
		return c.showPolicies(v, http.StatusBadRequest, p)
	}
	d, _, err := c.cfg.Provisioner.Config().Policy.Preview(v.r.Context(), in)
	answer, err := json.MarshalIndent(policies.NewAnswer(d, err), "", "  ")
	if err != nil {
		return err
	}
	p.Answer = string(cli.PrintableJSON(answer))
	return c.showPolicies(v, http.StatusOK, p)
}

// decisions are the codes of refusals by the policy.
var decisions = []wire.Code{wire.CodeDenied, wire.CodeDeferred, wire.CodeApprovalPending, wire.CodePolicyFailed}

// read reads what may hold secrets under names that do not say so.
func (p *policiesPage) read(e *policies.Engine) {
	var tests []policies.TestResult
	p.Files, p.Loaded, tests = e.InUse()
	p.Tests = &table{Columns: []string{"Test", "Result", "File", "Line"}, Empty: "The policy has no tests."}
	for _, t := range tests {
		p.Tests.add(t.Name, chip(t.Result, map[string]string{"pass": "good", "fail": "bad"}[t.Result]), t.File, t.Line)
	}
}

func (c policyPages) policies(v *visit) error {
	return c.showPolicies(v, http.StatusOK, &policiesPage{Done: done(v, policyActions)})
}

func (c policyPages) showPolicies(v *visit, status int, p *policiesPage) error {
	p.InUse = c.cfg.Orders.Process.Policy()
	if v.login.Role.Covers(trust.RoleAuditor) {
		p.read(c.cfg.Provisioner.Config().Policy)
	}
	p.Shadow = c.cfg.Shadow()
	p.Changes = c.cfg.Recent.Newest(maxShadowEvents, func(t *events.Logged) bool {
		return t.Type == events.PolicyReloaded || t.Type == events.PolicyRefused
	})
	p.Differs = c.cfg.Recent.Newest(maxShadowEvents, func(t *events.Logged) bool {
		return t.Type == events.ShadowDiffers
	})
	p.Decisions = c.cfg.Recent.Newest(maxShadowEvents, func(t *events.Logged) bool {
		return t.Type == events.Refused && slices.Contains(decisions, t.Data.Code) ||
			t.Data.Policy != "" && strings.HasPrefix(string(t.Type), "io.muster.node.")
	})
	c.show(v.w, v.r, v.login, status, "policies", "Policy", p)
	return nil
}
