package httpapi

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"muster/jwt"
	"muster/provisioner/operate"
	"muster/provisioner/orders"
	"muster/provisioner/trust"
)

// parameters returns the query parameters of a request, and every fault in them: a mistyped filter must not select
// everything. A trailing * in names allows repetition.
func parameters(r *http.Request, names ...string) (url.Values, error) {
	var errs []error
	v, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		errs = append(errs, fmt.Errorf("query: %w: a %% is written %%25, and a ; %%3B", err))
	}
	for _, name := range slices.Sorted(maps.Keys(v)) {
		once, many := slices.Contains(names, name), slices.Contains(names, name+"*")
		switch {
		case !once && !many:
			known := strings.ReplaceAll(strings.Join(names, ", "), "*", "")
			errs = append(errs, fmt.Errorf("%.40q: no such parameter, want %s", name, known))
		case once && len(v[name]) > 1:
			errs = append(errs, fmt.Errorf("%s: given %d times, want once", name, len(v[name])))
		case slices.Contains(v[name], "") && !slices.Contains(noFilters, name):
			errs = append(errs, fmt.Errorf("%s: is empty: give it a value, or leave it out", name))
			delete(v, name) // already reported
		}
	}
	return v, errors.Join(errs...)
}

// noFilters are parameters that may be empty, which means that they are absent.
var noFilters = []string{"after", "cursor", "once", "sort"}

// A Limit restricts an order to one key. An empty one, as from an unset variable, is refused: the order would apply to
// any key.
type Limit string

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (l *Limit) UnmarshalJSON(b []byte) error {
	s := strings.Trim(string(b), `"`)
	if s == "" {
		return errors.New("the key is empty: give it a value, or leave it out")
	}
	*l = Limit(s) // hex digits have no escapes; orders refuse anything else
	return nil
}

// Settings apply to the whole installation.
type Settings struct {
	Pauses []*orders.Pause `json:"pauses"` // the installation's first
}

// A NewPause pauses enrollment.
type NewPause struct {
	Site     jwt.Site `json:"site,omitempty"`     // empty: everywhere
	Renewals bool     `json:"renewals,omitempty"` // pause renewals too
	Why      string   `json:"why,omitempty"`
}

// A Resumption ends a pause.
type Resumption struct {
	Site jwt.Site `json:"site,omitempty"` // empty: the installation's pause
	Why  string   `json:"why,omitempty"`
}

func settingRoutes(s *Server) {
	pauses := s.cfg.Orders.Pauses
	settings := func() *Settings { return &Settings{Pauses: pauses.List()} }
	get(s, viewer, "/v1/settings", func(*http.Request) (*Settings, error) { return settings(), nil })
	change(s, operator, "/v1/settings/pause", func(r *http.Request, q *NewPause, c trust.Cause) (*Settings, error) {
		_, err := pauses.Begin(r.Context(), q.Site, q.Renewals, c)
		return settings(), err
	})
	change(s, operator, "/v1/settings/resume", func(r *http.Request, q *Resumption, c trust.Cause) (*Settings, error) {
		err := pauses.End(r.Context(), q.Site, c)
		return settings(), err
	})
}

func policyRoutes(s *Server) {
	process := s.cfg.Orders.Process
	get(s, viewer, "/v1/policy", func(*http.Request) (*operate.PolicyInUse, error) { return process.Policy(), nil })
	change(s, operator, "/v1/policy/reload",
		func(r *http.Request, _ *Reason, c trust.Cause) (*operate.PolicyInUse, error) {
			return process.ReloadPolicy(r.Context(), c)
		})
}
