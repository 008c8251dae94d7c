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
// read ([url.URL.Query] leaves it out), is not described of the route, or is there twice and counts
// once, is an error: who mistypes a filter must not get everybody. The values are there beside it,
// so that whoever reads them can say all that is wrong.
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
		}
	}
	return v, errors.Join(errs...)
}
