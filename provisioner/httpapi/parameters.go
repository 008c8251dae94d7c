package httpapi

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// parameters returns the query of a request; names are those that the route knows, with a * behind one that may be
// given several times. The error names each mistake: what cannot be read ([url.URL.Query] leaves it out), what is not
// known, what is there twice and counts once, and a filter without a value, since a mistyped filter must not select
// everything. The values are returned beside it, so that the caller can add what is wrong with them.
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
			delete(v, name) // nothing more is to be said of it
		}
	}
	return v, errors.Join(errs...)
}

// noFilters are parameters that say where and how to begin. Without a value they say the same as
// where they are left out.
var noFilters = []string{"after", "cursor", "once", "sort"}

// A Limit narrows what an order is for. An empty one is refused: it comes from a variable that is not set, and the
// order would be for any key.
type Limit string

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (l *Limit) UnmarshalJSON(b []byte) error {
	s := strings.Trim(string(b), `"`)
	if s == "" {
		return errors.New("a limit is empty: give it a value, or leave it out")
	}
	*l = Limit(s) // hex digits have no escapes, and nothing else passes the checks of an order
	return nil
}
