package console

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"muster/policies"
	"muster/provisioner"
	"muster/provisioner/fleet"
	"muster/provisioner/operate"
)

// statuses says what is told with which HTTP status; the first that fits.
var statuses = []struct {
	status int
	errs   []error
}{
	{http.StatusNotFound, []error{errNoPage, provisioner.ErrNoRecord, provisioner.ErrUnknownToken, operate.ErrNotWaiting, operate.ErrNotAllowed}},
	{http.StatusForbidden, []error{errForeignForm}},
	{http.StatusBadRequest, []error{errNoReason, provisioner.ErrTokenID, operate.ErrPauses, fleet.ErrCursor}},
	{http.StatusTooManyRequests, []error{provisioner.ErrLoginLimited}},
	{http.StatusUnauthorized, []error{provisioner.ErrLogin}},
	{http.StatusConflict, []error{
		provisioner.ErrState, operate.ErrNotPaused, provisioner.ErrNoClaim, provisioner.ErrClaimYoung, provisioner.ErrClaimEnrolled, operate.ErrNodeAway, operate.ErrNoCommandKey, errReplaying,
	}},
	{http.StatusUnprocessableEntity, []error{policies.ErrInvalid}},
	{http.StatusGatewayTimeout, []error{operate.ErrNodeSilent}},
	{http.StatusServiceUnavailable, []error{fleet.ErrReading, provisioner.ErrPending, provisioner.ErrRevocationsUnknown, provisioner.ErrClock}},
}

// statusOf returns the HTTP status of an error.
func statusOf(err error) int {
	var role *roleError
	var form *formError
	var order *provisioner.OrderError
	switch {
	case errors.As(err, &role):
		return http.StatusForbidden
	case errors.As(err, &form), errors.As(err, &order):
		return http.StatusBadRequest
	}
	for _, s := range statuses {
		for _, target := range s.errs {
			if errors.Is(err, target) {
				return s.status
			}
		}
	}
	return http.StatusInternalServerError
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

// statusRemedies says what to do about a status, where the error does not.
var statusRemedies = map[int]string{
	http.StatusNotFound:            "It may be spelled otherwise, or be gone.",
	http.StatusGatewayTimeout:      "Go back and ask again: what the node has taken already it does not do twice.",
	http.StatusServiceUnavailable:  "Try again in a few seconds. If it stays so, the provisioner's log says why.",
	http.StatusInternalServerError: "The provisioner's log has more.",
}

// subject is what a request is about, for logs.
func subject(r *http.Request) string { return fmt.Sprintf("%.20s %.200s", r.Method, r.URL.Path) }

// fail answers with an error, and logs it. login is nil if nobody is known: what strangers
// are told is of no interest, and they would write as much of the log as they like.
func (c *Console) fail(w http.ResponseWriter, r *http.Request, login *provisioner.Login, err error) {
	status := statusOf(err)
	by, level := "", slog.LevelDebug
	if login != nil {
		by, level = login.By(), slog.LevelInfo
	}
	c.cfg.Log.Log(r.Context(), level, "operator's request failed", "subject", subject(r), "by", by, "err", err)
	title := cmp.Or(failures[status], http.StatusText(status))
	c.show(w, r, login, status, "problem", title, failPage{err.Error(), statusRemedies[status], backFrom(r.URL.Path)})
}
