package facts

import (
	"fmt"
	"path"
	"strings"
)

// A Filter asks for a fact. Make one with [ParseFilter].
type Filter struct {
	Name  string
	Value string // * and ? stand for any text and any character

	pattern string // for path.Match, to which a slash is a separator
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

// Match reports whether a value is asked for.
func (f Filter) Match(value string) bool {
	ok, _ := path.Match(f.pattern, noSlash(value))
	return ok
}

// noSlash returns text without slashes: they are no separators in a fact.
func noSlash(text string) string { return strings.ReplaceAll(text, "/", "\x00") }
