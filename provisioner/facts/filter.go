package facts

import (
	"fmt"
	"path"
	"strings"
)

// A Filter selects nodes by a fact. Make one with [ParseFilter].
type Filter struct {
	Name  string
	Value string // * and ? are wildcards

	pattern string // for path.Match, with slashes replaced
}

// ParseFilter reads NAME=VALUE.
func ParseFilter(text string) (Filter, error) {
	name, value, ok := strings.Cut(text, "=")
	_, err := path.Match(value, "")
	if !ok || name == "" || err != nil {
		return Filter{}, fmt.Errorf("fact %.80q, want NAME=VALUE", text)
	}
	return Filter{Name: name, Value: value, pattern: noSlash(value)}, nil
}

// Match reports whether a value matches.
func (f Filter) Match(value string) bool {
	ok, _ := path.Match(f.pattern, noSlash(value))
	return ok
}

// noSlash replaces slashes, which path.Match treats as separators.
func noSlash(text string) string { return strings.ReplaceAll(text, "/", "\x00") }
