package facts

import (
	"encoding/json"
	"slices"
	"strings"

	"muster/internal/wire"
)

// A Finder finds facts by dotted names. A dot leads into an object, but a member whose name has the dot takes
// precedence. Nil finds nothing. It is safe for concurrent use.
type Finder struct {
	names []string // sorted, each once
	root  factLevel
}

// A factLevel has the wanted members of an object.
type factLevel map[string]*factBranch

type factBranch struct {
	fact  int       // 1 + index in names, or 0
	below factLevel // wanted members, if it is an object
}

// NewFinder returns nil for no names.
func NewFinder(names []string) *Finder {
	if len(names) == 0 {
		return nil
	}
	f := &Finder{names: slices.Compact(slices.Sorted(slices.Values(names))), root: make(factLevel)}
	for i, name := range f.names {
		f.root.plant(name, i+1)
	}
	return f
}

func (l factLevel) plant(rest string, fact int) {
	l.at(rest).fact = fact
	if first, tail, ok := strings.Cut(rest, "."); ok {
		b := l.at(first)
		if b.below == nil {
			b.below = make(factLevel)
		}
		b.below.plant(tail, fact)
	}
}

func (l factLevel) at(name string) *factBranch {
	if l[name] == nil {
		l[name] = new(factBranch)
	}
	return l[name]
}

// find calls each, in order of names, with the wanted strings, numbers and booleans.
func (f *Finder) find(facts json.RawMessage, each func(name, value string)) {
	if f == nil || len(facts) == 0 {
		return
	}
	found := make([]foundFact, len(f.names))
	if f.root.find(facts, 1, found) != nil {
		return
	}
	for i, fact := range found {
		if fact.depth > 0 {
			each(f.names[i], fact.text())
		}
	}
}

func (l factLevel) find(object json.RawMessage, depth int, found []foundFact) error {
	return wire.EachMember(object, func(name []byte, value json.RawMessage) error {
		b := l[string(name)] // does not allocate
		if b == nil {
			return nil
		}
		if b.below != nil && value[0] == '{' {
			return b.below.find(value, depth+1, found)
		}
		if b.fact == 0 || strings.IndexByte("{[n", value[0]) >= 0 {
			return nil
		}
		if at := &found[b.fact-1]; at.depth == 0 || at.depth >= depth { // at the least depth, the dots are in the name
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
