// Package facts is what nodes say of themselves: which facts are found by their dotted names, kept with a record, shown of
// a node that waits, and filtered by. All of it is the node's word.
package facts

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"muster/internal/wire"
)

// A Fact is something plain that a node says of itself: text, a number or a truth
// value, as text.
type Fact struct{ Name, Value string }

// literally has a pattern stand for the text itself.
var literally = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// Filter returns what [ParseFilter] reads for this very fact.
func (f Fact) Filter() string { return f.Name + "=" + literally.Replace(f.Value) }

// Facts are facts in the order of their names, each once. As JSON they are an
// object of texts. They are not to be changed: records share them.
type Facts []Fact

// Value returns the value of the fact of that name, "" if there is none.
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
		b, _ = wire.AppendJSON(b, fact.Name) // a text always encodes
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
