package httpapi_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/policies"
	"muster/provisioner/httpapi"
	"muster/provisioner/operate"
	"muster/provisioner/trust"
)

// TestProblemsHaveTypeAndTitle compares two problems without a code, and one
// with: type and title are those of the kind, and the rest is of this one.
func TestProblemsHaveTypeAndTitle(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	plain := refused(t, f, http.MethodGet, "/v1/tokens/"+"0123456789abcdef0123456789abcdef", nil)
	if plain.Type != "about:blank" || plain.Title != "Not Found" || plain.Status != http.StatusNotFound ||
		plain.Detail == plain.Title || plain.Code != "" {
		t.Errorf("without a code: %+v", *plain)
	}
	if p := refused(t, f, http.MethodGet, "/v1/none", nil); p.Type != plain.Type || p.Title != plain.Title ||
		p.Detail == plain.Detail {
		t.Errorf("another one: %+v", *p)
	}
	f.Clock.Advance(-24 * time.Hour) // before the authority began
	_, public := newKey(t)
	p := refused(t, f, http.MethodPost, "/v1/operators",
		httpapi.AddOperator{NewOperator: operate.NewOperator{
			Name:        "anna",
			Role:        trust.RoleViewer,
			Public:      public,
			Certificate: true,
		}})
	if p.Code == "" || p.Type != "urn:muster:problem:"+string(p.Code) || p.Title != wire.MeaningOf(p.Code).Public ||
		p.Remedy == "" {
		t.Errorf("with a code: %+v", *p)
	}
}

// TestJoinedErrorsAreOneLine joins errors: a script that reads lines gets
// one for each order. Faults of a policy are listed instead.
func TestJoinedErrorsAreOneLine(t *testing.T) {
	t.Parallel()
	both := errors.Join(errors.New("one"), errors.New("another"))
	for _, c := range []struct {
		err    error
		status int
		want   string
	}{
		{both, http.StatusInternalServerError, "one; another"},
		{errors.Join(trust.ErrUnacknowledged, errors.New("another")), http.StatusServiceUnavailable,
			trust.ErrUnacknowledged.Error() + "; another"},
		{errors.Join(operate.ErrEverything, errors.New("another")), http.StatusBadRequest,
			operate.ErrEverything.Error() + "; another"},
		{fmt.Errorf("%w:\n%w", policies.ErrInvalid, both), http.StatusUnprocessableEntity, policies.ErrInvalid.Error() +
			":\none\nanother"},
	} {
		w := httptest.NewRecorder()
		httpapi.Write(httpapi.ProblemOf(c.err), w)
		var p httpapi.Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != c.status || p.Detail != c.want {
			t.Errorf("%q: %d %q (%v), want %d %q", c.err, w.Code, p.Detail, err, c.status, c.want)
		}
	}
}
