package facts

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"muster/internal/wire"
)

// A Finder finds facts by dotted names. A dot leads into an object, but a member whose name has the dot takes
// precedence. Nil finds nothing. It is safe for concurrent use.
type Finder struct {
	names  []string        // sorted, each once
	index  map[string]int  // in names
	inside map[string]bool // names of objects that have wanted members
}

// NewFinder returns nil for no names.
func NewFinder(names []string) *Finder {
	if len(names) == 0 {
		return nil
	}
	f := &Finder{
		names:  slices.Compact(slices.Sorted(slices.Values(names))),
		index:  make(map[string]int),
		inside: make(map[string]bool),
	}
	for i, name := range f.names {
		f.index[name] = i
		for at, c := range name {
			if c == '.' {
				f.inside[name[:at]] = true
			}
		}
	}
	return f
}

// find calls each, in order of names, with the wanted strings, numbers and booleans.
func (f *Finder) find(facts json.RawMessage, each func(name, value string)) {
	if f == nil || len(facts) == 0 {
		return
	}
	found := make([]foundFact, len(f.names))
	if f.search(facts, make([]byte, 0, maxNameBytes), 1, found) != nil {
		return
	}
	for i, fact := range found {
		if fact.depth > 0 {
			each(f.names[i], fact.text())
		}
	}
}

// search looks into an object. prefix is its name with a dot, or empty.
func (f *Finder) search(object json.RawMessage, prefix []byte, depth int, found []foundFact) error {
	return wire.EachMember(object, func(name []byte, value json.RawMessage) error {
		full := name
		if depth > 1 {
			full = append(prefix, name...)
		}
		if value[0] == '{' && f.inside[string(full)] && bytes.IndexByte(name, '.') < 0 { // does not allocate
			return f.search(value, append(append(prefix, name...), '.'), depth+1, found)
		}
		i, wanted := f.index[string(full)]
		if !wanted || strings.IndexByte("{[n", value[0]) >= 0 {
			return nil
		}
		if at := &found[i]; at.depth == 0 || at.depth >= depth { // at the least depth, the dots are in the name
			*at = foundFact{raw: value, depth: depth}
		}
		return nil
	})
}

type foundFact struct {
	raw   json.RawMessage
	depth int // from 1; 0: not found
}

func (f *foundFact) text() string {
	if f.raw[0] != '"' {
		return string(f.raw)
	}
	var s string
	_ = json.Unmarshal(f.raw, &s) // valid: checked when it was received
	return s
}
