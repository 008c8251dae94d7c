package provisioner

import (
	"fmt"
	"path"
	"strings"
)

// A FactFilter asks for a fact.
type FactFilter struct {
	Name  string
	Value string // * and ? stand for any text and any character
}

// ParseFactFilter reads NAME=VALUE.
func ParseFactFilter(text string) (FactFilter, error) {
	name, value, ok := strings.Cut(text, "=")
	_, err := path.Match(value, "")
	if !ok || name == "" || err != nil {
		return FactFilter{}, fmt.Errorf("fact %.80q, want NAME=VALUE", text)
	}
	return FactFilter{name, value}, nil
}

// Match reports whether a value is asked for.
func (f FactFilter) Match(value string) bool {
	// A slash is no separator in a fact.
	ok, _ := path.Match(strings.ReplaceAll(f.Value, "/", "\x00"), strings.ReplaceAll(value, "/", "\x00"))
	return ok
}
