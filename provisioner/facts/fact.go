// Package facts finds, keeps, shows and filters facts of nodes. They are unproven.
package facts

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"muster/internal/wire"
)

// A Fact is a string, number or boolean, as text.
type Fact struct{ Name, Value string }

var literally = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// Filter returns the filter for exactly this fact, see [ParseFilter].
func (f Fact) Filter() string { return f.Name + "=" + literally.Replace(f.Value) }

// Facts are sorted by name, without duplicates. In JSON they are an object of strings. They must not be changed:
// records share them.
type Facts []Fact

// Value returns the value of a fact, or "".
func (f Facts) Value(name string) string {
	i, ok := slices.BinarySearchFunc(f, name, func(a Fact, name string) int { return strings.Compare(a.Name, name) })
	if !ok {
		return ""
	}
	return f[i].Value
}

// MarshalJSON implements [json.Marshaler].
func (f Facts) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, fact := range f {
		if i > 0 {
			b = append(b, ',')
		}
		b, _ = wire.AppendJSON(b, fact.Name) // cannot fail for a string
		b, _ = wire.AppendJSON(append(b, ':'), fact.Value)
	}
	return append(b, '}'), nil
}

// UnmarshalJSON implements [json.Unmarshaler].
func (f *Facts) UnmarshalJSON(b []byte) error {
	var m map[string]string
	if err := json.Unmarshal(b, &m); err != nil {
		return err
	}
	*f = nil
	for _, name := range slices.Sorted(maps.Keys(m)) {
		*f = append(*f, Fact{name, m[name]})
	}
	return nil
}

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
