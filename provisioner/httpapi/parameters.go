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

// parameters returns the query part of a request, for a route that looks at it. What cannot be
// read ([url.URL.Query] leaves it out), is not described of the route, is there twice and counts
// once, or is a filter without a value is an error: who mistypes a filter, or writes a variable
// that is not set, must not get everybody. The values are there beside it, so that whoever reads
// them can say all that is wrong.
func parameters(r *http.Request) (url.Values, error) {
	var errs []error
	v, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		errs = append(errs, fmt.Errorf("query: %w: a %% is written %%25, and a ; %%3B", err))
	}
	often := make(map[string]bool) // by name
	var names []string
	for _, p := range descriptions[r.Pattern].inputs {
		if p.In == "query" {
			often[p.Name], names = p.Schema.Type == "array", append(names, p.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(v)) {
		switch many, known := often[name]; {
		case !known:
			errs = append(errs, fmt.Errorf("%.40q: no such parameter, want %s", name, strings.Join(names, ", ")))
		case !many && len(v[name]) > 1:
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
