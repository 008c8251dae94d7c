package console

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"muster/provisioner/trust"

	"muster/provisioner/login"
)

// A mistake is what is wrong with a request to the console itself.
type mistake struct {
	status int
	err    error
}

func (m *mistake) Error() string { return m.err.Error() }
func (m *mistake) Unwrap() error { return m.err }

// badRequest is a mistake in what was filled in.
func badRequest(err error) error { return &mistake{http.StatusBadRequest, err} }

var (
	errNoPage      = &mistake{http.StatusNotFound, errors.New("there is no such page")}
	errNoReason    = &mistake{http.StatusBadRequest, errors.New("say why: it goes into the history, for operators who look at it later")}
	errForeignForm = &mistake{http.StatusForbidden,
		errors.New("this form is not one of the console's, or is too old: go back, load the page again, and send it once more")}
)

// roleError says that an operator may not do something.
func roleError(l *login.Login, needs trust.OperatorRole) error {
	return &mistake{http.StatusForbidden, fmt.Errorf("you are %s (%s), and this needs %s. "+
		"An admin changes roles with `muster operator add`", l.Role, l.Name, needs)}
}

// problem returns how an error is answered.
func (c *Console) problem(err error) (status int, what, remedy string) {
	var m *mistake
	if errors.As(err, &m) {
		return m.status, err.Error(), ""
	}
	return c.cfg.Problem(err)
}

// failPage says what went wrong.
type failPage struct {
	What string
	Do   string
	Back string // where to go on
}

// failures are what statuses are called in words of operators.
var failures = map[int]string{
	http.StatusBadRequest: "Not understood", http.StatusForbidden: "Not allowed", http.StatusNotFound: "Not found", http.StatusConflict: "Not done",
	http.StatusUnprocessableEntity: "Refused", http.StatusTooManyRequests: "Too many tries", http.StatusInternalServerError: "Something went wrong",
	http.StatusServiceUnavailable: "Not now", http.StatusGatewayTimeout: "No answer",
}

// backFrom returns the page from which an operator came to where it went wrong.
func backFrom(path string) string {
	if page, _, order := strings.Cut(path, "/do/"); order {
		return page
	}
	part, _, below := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if below && slices.Contains([]string{"nodes", "approvals", "allow", "tokens", "policies"}, part) {
		return "/" + part
	}
	return "/"
}

// subject is what a request is about, for logs.
func subject(r *http.Request) string { return fmt.Sprintf("%.20s %.200s", r.Method, r.URL.Path) }

// fail answers with an error, and logs it. login is nil if nobody is known: what strangers
// are told is of no interest, and they would write as much of the log as they like.
func (c *Console) fail(w http.ResponseWriter, r *http.Request, login *login.Login, err error) {
	status, what, remedy := c.problem(err)
	by, level := "", slog.LevelDebug
	if login != nil {
		by, level = login.By(), slog.LevelInfo
	}
	c.cfg.Log.Log(r.Context(), level, "operator's request failed", "subject", subject(r), "by", by, "err", err)
	title := cmp.Or(failures[status], http.StatusText(status))
	c.show(w, r, login, status, "problem", title, failPage{what, remedy, backFrom(r.URL.Path)})
}
